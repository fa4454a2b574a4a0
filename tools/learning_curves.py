"""Train the programs of docs/examples with several seeds, and draw their learning curves.

    python tools/learning_curves.py [NAME ...] [--seeds 5] [--processes 2]

Writes ``docs/examples/curves/NAME.json`` (the returns of each seed) and ``NAME.png`` (median and range) for each name
of ``CURVES``, or for those given. With the JSON there, ``--draw`` draws the pictures only.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "docs/examples"
FOLDER = EXAMPLES / "curves"

#: The program, the number of frames, and further arguments of its function ``train``.
CURVES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "ppo-cartpole": ("ppo", 100_000, {"name": "gym:CartPole-v1"}),
    "ppo-halfcheetah": ("ppo", 500_000, {"name": "gym:HalfCheetah-v5", "evaluate_every": 20}),
    "ppo-recurrent": ("ppo_recurrent", 150_000, {}),
    "mappo-balance": ("mappo", 240_000, {"name": "vmas:balance"}),
    "mappo-simple-spread": ("mappo", 200_000, {"name": "pettingzoo:mpe2/simple_spread_v3"}),
    "dqn-cartpole": ("dqn", 50_000, {}),
    "sac-pendulum": ("sac", 15_000, {}),
}


def train(name: str, seed: int) -> tuple[list[tuple[int, float]], float]:
    """Run one training; return ``(frames, mean return)`` of each evaluation, and the seconds."""
    program, frames, arguments = CURVES[name]
    spec = importlib.util.spec_from_file_location(program, EXAMPLES / f"{program}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[program] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    start = time.perf_counter()
    curve = [(point[0], float(point[-1])) for point in module.train(frames, seed, **arguments)]
    return curve, time.perf_counter() - start


def rows(curves: list[list[tuple[int, float]]]) -> Iterator[tuple[int, float, float, float]]:
    """Yield frames, lowest, median and highest return of all seeds, at the evaluations that all of them have."""
    for points in zip(*curves, strict=False):
        returns = [value for _, value in points]
        yield (
            int(statistics.median(frames for frames, _ in points)),
            min(returns),
            statistics.median(returns),
            max(returns),
        )


def draw(name: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    frames, low, middle, high = zip(*rows(content["curves"]), strict=True)
    figure, axes = plt.subplots(figsize=(5, 3), dpi=120)
    axes.fill_between(frames, low, high, alpha=0.25, linewidth=0)
    axes.plot(frames, middle)
    axes.set(xlabel="frames", ylabel="mean return", title=f"{name}: median and range of {len(content['curves'])} seeds")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    figure.savefig(FOLDER / f"{name}.png", bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CURVES)} (default: all)")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--draw", action="store_true", help="draw the pictures from the JSON, and train nothing")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(CURVES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}. Choose from {', '.join(CURVES)}")
    FOLDER.mkdir(exist_ok=True)
    names = args.names or list(CURVES)
    if not args.draw:
        with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            jobs = {name: [pool.submit(train, name, seed) for seed in range(args.seeds)] for name in names}
            for name, futures in jobs.items():
                results = [future.result() for future in futures]
                text = json.dumps({"curves": [curve for curve, _ in results], "seconds": [s for _, s in results]})
                (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
                print(f"{name}: last median {list(rows([curve for curve, _ in results]))[-1][2]:.1f}", flush=True)
    for name in names:
        draw(name)


if __name__ == "__main__":
    main()
