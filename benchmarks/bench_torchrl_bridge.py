"""Compare batches of TorchRL and of steppe under collectors of TorchRL, in frames per second.

    python benchmarks/bench_torchrl_bridge.py [--n 8] [--frames 800] [--rounds 9] [--write FILE]

Needs an interpreter with TorchRL, steppe-torchrl and gymnasium. Collectors with random actions take turns, one batch of
data each; figures are medians, and ratios are to TorchRL's Collector over its ParallelEnv in the same turns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from common import Contest, show, write_figures

warnings.filterwarnings("ignore")

NAME = "CartPole-v1"
BASE = "TorchRL Collector, TorchRL ParallelEnv"


def contestants(n: int, frames: int) -> dict[str, Any]:
    """Return the collectors by name."""
    from torchrl.collectors import Collector as TorchRLCollector
    from torchrl.envs import GymEnv, ParallelEnv, SerialEnv

    import steppe
    from steppe_torchrl import as_torchrl

    arguments = {"frames_per_batch": frames, "total_frames": -1}
    theirs, ours = partial(GymEnv, NAME), f"gym:{NAME}"
    return {
        BASE: TorchRLCollector(ParallelEnv(n, theirs), None, **arguments),
        "TorchRL Collector, TorchRL SerialEnv": TorchRLCollector(SerialEnv(n, theirs), None, **arguments),
        "TorchRL Collector, steppe ParallelEnv": TorchRLCollector(
            as_torchrl(steppe.ParallelEnv(n, ours)), None, **arguments
        ),
        "TorchRL Collector, steppe ParallelEnv(caller_share)": TorchRLCollector(
            as_torchrl(steppe.ParallelEnv(n, ours, caller_share=True)), None, **arguments
        ),
        "TorchRL Collector, steppe SerialEnv": TorchRLCollector(
            as_torchrl(steppe.SerialEnv(n, ours)), None, **arguments
        ),
        "steppe Collector, steppe ParallelEnv": steppe.Collector(steppe.ParallelEnv(n, ours), None, **arguments),
    }


def slice_of(batches: Any, frames: int) -> Callable[[], float]:
    """Return a function that collects one batch and returns frames per second."""

    def collect() -> float:
        start = time.perf_counter()
        next(batches)
        return frames / (time.perf_counter() - start)

    return collect


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=8, help="number of environments")
    parser.add_argument("--frames", type=int, default=800, help="frames of a batch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", metavar="FILE", help="add the medians to a JSON file")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    collectors = contestants(args.n, args.frames)
    contest = Contest(NAME, "frames/s")
    try:
        for name, collector in collectors.items():
            contest.add(name, slice_of(iter(collector), args.frames))
        medians = contest.run(args.rounds)
    finally:
        for collector in collectors.values():
            collector.shutdown()
    if args.write:
        settings = {"unit": "frames/s", "rounds": args.rounds, "libraries": "torchrl tensordict gymnasium torch"}
        write_figures(args.write, f"torchrl, {NAME}", medians, **settings)
    rows = [[name, f"{speed:,.0f}", f"{speed / medians[BASE]:.1f}x"] for name, speed in medians.items()]
    show(f"{args.n} {NAME}, batches of {args.frames} frames, random actions", ["", "frames/s", "ratio"], rows)


if __name__ == "__main__":
    main()
