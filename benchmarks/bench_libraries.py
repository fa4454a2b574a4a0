"""Compare rollouts of environments with handwritten loops over their libraries.

    python benchmarks/bench_libraries.py [NAME ...] [--rounds 15] [--write FILE.json]

The loop of a library takes random actions, reads what a rollout stores, and resets ended episodes (library_cases.py).
The rollout takes given actions; a collector, where one is measured, takes random actions. Contestants take turns in
slices of a tenth of a second; figures are medians in microseconds per step, and the ratio is that of the same turn.
Libraries that are not installed are left out.

With SuperSuit installed, a batch of PettingZoo's environments is compared with its ``concat_vec_envs_v1``
(``SuperSuit`` as NAME runs this alone). ``--write`` adds the medians to a JSON file: ``libraries.json`` has those of
docs/performance.md.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from common import Contest, show, write_figures
from library_cases import CASES, Case

from steppe import ParallelEnv, make_env
from steppe.collectors import Collector
from steppe.errors import NotSupported

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

LOOP, ROLLOUT, COLLECTOR = "loop over the library", "rollout", "collector"


def steps_in(loop: Iterator[None], seconds: float = 0.1) -> int:
    """Return how many steps of the library fill a slice, between 4 and 400."""
    for _ in range(2):
        next(loop)  # the first steps compile, or make the first episode
    start = time.perf_counter()
    for _ in range(2):
        next(loop)
    return int(min(400, max(4, 2 * seconds / (time.perf_counter() - start))))


def raw_slice(loop: Iterator[None], steps: int) -> Callable[[], float]:
    def run() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            next(loop)
        return 1e6 * (time.perf_counter() - start) / steps

    return run


def seed(env: Any) -> None:
    with suppress(NotSupported):  # Unity seeds a game only when it starts
        env.set_seed(0)


def our_env(case: Case) -> Any:
    env = case.make() if case.make else make_env(case.id, **case.kwargs)
    seed(env)
    return env


def our_slice(case: Case, steps: int) -> Callable[[], float]:
    env = our_env(case)
    first = env.rollout(steps, break_when_any_done=False)
    actions = list(first.select(*env.action_keys).unbind(-1))

    def run() -> float:
        seed(env)  # the same course, in which these actions are allowed
        root = env.reset()
        start = time.perf_counter()
        env.rollout(steps, actions=actions, break_when_any_done=False, tensordict=root, auto_reset=False)
        return 1e6 * (time.perf_counter() - start) / steps

    return run


def collector_slice(case: Case, steps: int) -> Callable[[], float]:
    """Return a slice of one batch of a collector, which takes random actions."""
    env = our_env(case)
    batches = iter(Collector(env, None, frames_per_batch=steps * max(1, env.numel()), total_frames=-1))

    def run() -> float:
        start = time.perf_counter()
        next(batches)
        return 1e6 * (time.perf_counter() - start) / steps

    return run


def supersuit_slice(name: str, n: int, steps: int) -> tuple[Callable[[], float], Callable[[], None]]:
    """Return a slice of SuperSuit's batch in two processes, with a row for each agent, and its close."""
    import supersuit

    # SuperSuit needs agents with equal spaces: the predators and the prey of simple_tag are padded.
    padded = supersuit.pad_action_space_v0(supersuit.pad_observations_v0(import_module(f"mpe2.{name}").parallel_env()))
    one = supersuit.pettingzoo_env_to_vec_env_v1(padded)
    batch = supersuit.concat_vec_envs_v1(one, n, num_cpus=2, base_class="gymnasium")
    batch.reset(seed=0)
    actions = np.random.default_rng(0).integers(batch.action_space.n, size=(steps, batch.num_envs))

    def run() -> float:
        start = time.perf_counter()
        for action in actions:
            batch.step(action)
        return n * steps / (time.perf_counter() - start)

    return run, batch.close


def batch_slice(id: str, n: int, steps: int) -> tuple[Callable[[], float], Callable[[], None]]:
    """Return a slice of a loop over ``ParallelEnv`` with two processes, and its close."""
    batch = ParallelEnv(n, id, num_processes=2)
    batch.set_seed(0)
    root = batch.rand_action(batch.reset())
    actions = [batch.rand_action(root.copy()).select(*batch.action_keys) for _ in range(steps)]

    def run() -> float:
        root = batch.reset()
        start = time.perf_counter()
        for action in actions:
            _, root = batch.step_and_maybe_reset(root.update(action))
        return n * steps / (time.perf_counter() - start)

    return run, batch.close


def compare_with_supersuit(rounds: int, steps: int = 100, n: int = 8) -> dict[str, Contest]:
    """Compare ``ParallelEnv`` with SuperSuit's ``concat_vec_envs_v1``, which has the same actions in each step."""
    contests = {}
    for name in ("simple_tag_v3", "simple_spread_v3"):
        contest = contests[f"SuperSuit, {n} of {name}"] = Contest(name, "frames per second")
        (theirs, close_theirs), (ours, close_ours) = (
            supersuit_slice(name, n, steps),
            batch_slice(f"pettingzoo:mpe2/{name}", n, steps),
        )
        contest.add("SuperSuit", theirs)
        contest.add("ParallelEnv", ours)
        contest.run(rounds)
        close_theirs(), close_ours()
    return contests


def compare_with_library(name: str, case: Case, rounds: int) -> dict[str, Contest]:
    """Compare a rollout, and a collector if the case asks for it, with the loop over its library."""
    loop = case.loop()
    steps = steps_in(loop)
    contests = {}
    for label, ours, slice_ in ((name, ROLLOUT, our_slice), (f"{name}, collector", COLLECTOR, collector_slice)):
        if ours == ROLLOUT or case.collects:
            contest = contests[label] = Contest(case.id, "us per step")
            contest.add(LOOP, raw_slice(loop, steps))
            contest.add(ours, slice_(case, steps))
            contest.run(rounds)
    return contests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", metavar="FILE.json")
    args = parser.parse_args()
    beginnings = tuple(args.names) or ("",)
    contests, libraries = {}, {"SuperSuit": "pettingzoo mpe2 supersuit"}
    for name, case in CASES.items():
        if name.startswith(beginnings) and find_spec(case.module) is not None:
            compared = compare_with_library(name, case, args.rounds)
            contests |= compared
            libraries |= dict.fromkeys(compared, case.libraries)
    if "SuperSuit".startswith(beginnings) and find_spec("supersuit") is not None:
        contests |= compare_with_supersuit(args.rounds)
    rows = []
    for name, contest in contests.items():
        first, second = contest.figures.values()
        ratio = statistics.median(b / a for a, b in zip(first, second, strict=True))
        medians = contest.medians()
        rows.append([name, contest.unit, *(f"{value:,.1f}" for value in medians.values()), f"{ratio:.2f}"])
        if args.write:
            libs = "torch " + libraries.get(name, libraries["SuperSuit"])
            write_figures(args.write, name, medians, unit=contest.unit, rounds=args.rounds, libraries=libs)
    show("rollouts, and batches of PettingZoo", ["", "unit", "library or SuperSuit", "steppe", "ratio"], rows)


if __name__ == "__main__":
    main()
