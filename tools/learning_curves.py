"""Train the programs of docs/examples and Stable-Baselines3 with several seeds, and draw their learning curves.

    nox -s curves -- [--only NAME ...] [--side steppe|sb3] [--missing] [--seeds 5] [--jobs 2] [--limit-minutes M]

Each training is a process of its own, with one thread. It writes its returns to ``RUNS/NAME-SIDE-SEED.json`` after
each evaluation; trainings that are complete there are not repeated. The longest begins first. After ``--limit-minutes``
the trainings are stopped, and their returns so far stay. Then ``docs/examples/curves/NAME.json`` gets the returns of
both sides, and ``NAME.png`` their medians and ranges. ``--draw`` makes these files from the runs, and trains nothing.

Stable-Baselines3 takes the settings of the examples (tools/sb3_training.py). It needs stable-baselines3, sb3-contrib.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs/examples"
FOLDER = EXAMPLES / "curves"
SIDES = ("steppe", "sb3")
Points = list[tuple[int, float]]


class Training(NamedTuple):
    """One training.

    ``evaluate_every`` is that of the program's ``train``; None: it has none. ``minutes`` of each side on one core
    decide which begins first; None: there is no such side.
    """

    title: str
    program: str
    env: str | None
    frames: int
    evaluate_every: int | None
    minutes: tuple[float, float | None]


TRAININGS = {
    "ppo-cartpole": Training("PPO, CartPole", "ppo", "gym:CartPole-v1", 100_000, 10, (0.3, 1)),
    "ppo-halfcheetah": Training("PPO, HalfCheetah", "ppo", "gym:HalfCheetah-v5", 500_000, 20, (3, 7)),
    "ppo-recurrent": Training("recurrent PPO, CartPole without velocities", "ppo_recurrent", None, 150_000, 10, (1, 4)),
    "mappo-balance": Training("MAPPO, VMAS balance", "mappo", "vmas:balance", 240_000, None, (0.6, None)),
    "mappo-simple-spread": Training(
        "MAPPO, PettingZoo simple_spread", "mappo", "pettingzoo:mpe2/simple_spread_v3", 200_000, None, (1.6, None)
    ),
    "evolution-strategies": Training(
        "evolution strategies, CartPole", "evolution_strategies", None, 400_000, 20_000, (1, None)
    ),
    "dqn-cartpole": Training("DQN, CartPole", "dqn", "gym:CartPole-v1", 50_000, 40, (0.8, 2)),
    "dqn-qbert": Training("DQN, Atari Qbert", "dqn", "gym:ALE/Qbert-v5", 51_200, 50, (5, 6)),
    "sac-pendulum": Training("SAC, Pendulum", "sac", "gym:Pendulum-v1", 15_000, 2_000, (1.2, 3)),
    "sac-halfcheetah": Training("SAC, HalfCheetah", "sac", "gym:HalfCheetah-v5", 20_000, 2_500, (3, 4)),
}


def load(path: Path) -> ModuleType:
    """Import a file that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def arguments(training: Training) -> dict[str, Any]:
    """Return the arguments of ``train`` of the program, beside frames and seed."""
    named = {"name": training.env, "evaluate_every": training.evaluate_every}
    return {key: value for key, value in named.items() if value is not None}


def train(name: str, side: str, seed: int, report: Callable[[int, float], None]) -> None:
    """Run one training; ``report(frames, mean return)`` is called after each evaluation."""
    import torch

    torch.set_num_threads(1)
    training = TRAININGS[name]
    example = load(EXAMPLES / f"{training.program}.py")
    if side == "sb3":
        peer = getattr(load(ROOT / "tools/sb3_training.py"), training.program)
        peer(example, training.env, training.frames, seed, training.evaluate_every, report)
        return
    for point in example.train(training.frames, seed, **arguments(training)):
        report(point[0], float(point[-1]))


def path_of(runs: Path, name: str, side: str, seed: int) -> Path:
    return runs / f"{name}-{side}-{seed}.json"


def run(runs: Path, name: str, side: str, seed: int) -> None:
    """Run one training, and write its returns after each evaluation."""
    path, start, points = path_of(runs, name, side, seed), time.perf_counter(), []

    def write(complete: bool) -> None:
        content = {"points": points, "seconds": round(time.perf_counter() - start, 1), "complete": complete}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(content) + "\n", encoding="utf-8")
        part.replace(path)

    def report(frames: int, value: float) -> None:
        points.append((int(frames), round(float(value), 2)))
        write(complete=False)

    train(name, side, seed, report)
    write(complete=True)


def read(runs: Path, name: str, side: str, seed: int) -> dict[str, Any] | None:
    """Return the content of a run; None if there is none."""
    path = path_of(runs, name, side, seed)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def train_all(runs: Path, jobs: list[tuple[str, str, int]], processes: int, limit: float | None) -> None:
    """Run trainings in processes, the longest first; stop all of them after ``limit`` seconds."""
    runs.mkdir(parents=True, exist_ok=True)
    waiting = [job for job in jobs if not (read(runs, *job) or {}).get("complete")]
    waiting.sort(key=lambda job: TRAININGS[job[0]].minutes[SIDES.index(job[1])] or 0, reverse=True)
    end = time.monotonic() + (limit or float("inf"))
    env = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    active: dict[subprocess.Popen[bytes], tuple[tuple[str, str, int], float]] = {}
    try:
        while (waiting or active) and time.monotonic() < end:
            while waiting and len(active) < processes:
                job = waiting.pop(0)
                command = [sys.executable, __file__, "--runs", str(runs), "--run", *map(str, job)]
                with path_of(runs, *job).with_suffix(".log").open("wb") as log:
                    process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
                active[process] = job, time.monotonic()
            for process in [process for process in active if process.poll() is not None]:
                job, start = active.pop(process)
                outcome = "done" if process.returncode == 0 else f"FAILED ({process.returncode})"
                print(*job, outcome, f"{time.monotonic() - start:.0f} s", flush=True)
            time.sleep(0.2)
    finally:
        for process, (job, start) in active.items():
            print(*job, "STOPPED after", f"{time.monotonic() - start:.0f} s", flush=True)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for job in waiting:
        print(*job, "NOT BEGUN", flush=True)


def curves_of(name: str) -> dict[str, Any]:
    """Return what ``docs/examples/curves`` has of a training, by side."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def gather(runs: Path, names: list[str], seeds: int) -> None:
    """Write the runs of each training into its file of curves; a side without runs keeps what it has."""
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        content = curves_of(name)
        for side in SIDES:
            results = [result for seed in range(seeds) if (result := read(runs, name, side, seed))]
            if results:
                seconds = [result["seconds"] for result in results]
                content[side] = {"curves": [result["points"] for result in results], "seconds": seconds}
        if content:
            (FOLDER / f"{name}.json").write_text(json.dumps(content) + "\n", encoding="utf-8")


def rows(curves: list[Points]) -> Iterator[tuple[int, float, float, float]]:
    """Yield frames, lowest, median and highest return of all seeds, at the evaluations that all of them have."""
    for points in zip(*curves, strict=False):
        returns = [value for _, value in points]
        yield (
            int(statistics.median(frames for frames, _ in points)),
            min(returns),
            statistics.median(returns),
            max(returns),
        )


LABELS = {"steppe": "steppe's example", "sb3": "Stable-Baselines3"}
COLOURS = {"steppe": "#2563eb", "sb3": "#d97706"}


def draw(name: str) -> None:
    """Draw the medians and ranges of both sides."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    content = curves_of(name)
    figure, axes = plt.subplots(figsize=(5, 3), dpi=120)
    for side in [side for side in SIDES if side in content]:
        frames, low, middle, high = zip(*rows(content[side]["curves"]), strict=True)
        axes.fill_between(frames, low, high, color=COLOURS[side], alpha=0.2, linewidth=0)
        axes.plot(frames, middle, color=COLOURS[side], label=LABELS[side])
    seeds = min(len(content[side]["curves"]) for side in content)
    axes.set(xlabel="frames", ylabel="mean return", title=f"{TRAININGS[name].title}: median and range of {seeds} seeds")
    axes.title.set_fontsize(9)
    axes.xaxis.set_major_locator(plt.MaxNLocator(6))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    if len(content) > 1:
        axes.legend(frameon=False)
    figure.savefig(FOLDER / f"{name}.png", bbox_inches="tight")
    plt.close(figure)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def table(names: list[str]) -> Iterator[str]:
    """Yield the lines of the table of docs/examples.md."""
    for name in names:
        content = curves_of(name)
        for side in [side for side in SIDES if side in content]:
            frames, low, middle, high = list(rows(content[side]["curves"]))[-1]
            label = TRAININGS[name].title if side == "steppe" else f"the same, {LABELS[side]}"
            yield f"| {label} | {frames:,} | {number(middle)} | {number(low)}, {number(high)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(TRAININGS)} (default: all)")
    parser.add_argument("--side", choices=SIDES, help="default: both")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--limit-minutes", type=float)
    parser.add_argument("--runs", type=Path, default=ROOT / ".curves", help="folder for the runs")
    parser.add_argument("--missing", action="store_true", help="leave out sides that docs/examples/curves has")
    parser.add_argument("--train", action="store_true", help="train, and draw nothing")
    parser.add_argument("--draw", action="store_true", help="draw the runs that are there, and train nothing")
    parser.add_argument("--run", nargs=3, metavar=("NAME", "SIDE", "SEED"), help="run one training in this process")
    args = parser.parse_args()
    if args.run:
        name, side, seed = args.run
        run(args.runs, name, side, int(seed))
        return
    names = args.only or list(TRAININGS)
    if unknown := sorted(set(names) - set(TRAININGS)):
        parser.error(f"unknown: {', '.join(unknown)}. Choose from {', '.join(TRAININGS)}")
    if not args.draw:
        sides = [args.side] if args.side else list(SIDES)
        jobs = [
            (name, side, seed)
            for name in names
            for side in sides
            for seed in range(args.seeds)
            if TRAININGS[name].minutes[SIDES.index(side)] is not None and not (args.missing and side in curves_of(name))
        ]
        limit = None if args.limit_minutes is None else 60 * args.limit_minutes
        train_all(args.runs, jobs, args.jobs, limit)
    if args.train:
        return
    gather(args.runs, names, args.seeds)
    names = [name for name in names if (FOLDER / f"{name}.json").exists()]
    for name in names:
        draw(name)
    print(*table(names), sep="\n")


if __name__ == "__main__":
    main()
