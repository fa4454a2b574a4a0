"""Measure the usual image transforms on eight Pongs in worker processes.

    python benchmarks/bench_atari.py [--rounds 7] [--steps 60] [--n 8] [--peer-python PYTHON] [--preprocessing]

ToTensorImage, GrayScale, Resize to 84, CatFrames of 4, RewardClipping, RewardSum and StepCounter run in each worker of
``ParallelEnv(8, ALE/Pong-v5)``. The first table has the CPU time of a frame in all processes, and frames per second,
compared to the limit: a step of the raw library and the bare tensor operations, on all cores.

``--preprocessing`` prints only a table of atari_preprocessing() beside gymnasium's AtariPreprocessing and
FrameStackObservation: one game, and ``n`` games in worker processes.

``--peer-python`` names an interpreter with TorchRL and ale-py: the second table has the same chain without Resize
(which needs torchvision in TorchRL) in both libraries' ``ParallelEnv``. Contestants take turns; figures are medians,
and ratios are of figures of the same round. Transforms whose packages are not installed are left out, with a message.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import psutil
import torch
from bench_transforms import grey, missing, small
from common import show
from peer import Peer

import steppe.transforms
from steppe import Compose, ParallelEnv, TransformedEnv, make_env
from steppe.errors import TransformNotFound

CHAIN: dict[str, dict[str, Any]] = {
    "ToTensorImage": {},
    "GrayScale": {},
    "Resize": {"w": 84},
    "CatFrames": {"N": 4, "dim": -3},
    "RewardClipping": {"clamp_min": -1.0, "clamp_max": 1.0},
    "RewardSum": {},
    "StepCounter": {},
}

GAME = "ALE/Pong-v5"
LIMIT = "raw step + bare operations"

#: The function to call, the number of its frames, and the ids of its worker processes.
Contestant = tuple[Callable[[], Any], int, list[int]]


def make_chain(*, resized: bool = True) -> Any:
    """Make Pong with the installed transforms of the chain."""
    parts = []
    for name, arguments in CHAIN.items():
        if name == "Resize" and not resized:
            continue
        try:
            parts.append(getattr(steppe.transforms, name)(**arguments))
        except TransformNotFound:
            continue
    return TransformedEnv(make_env(f"gym:{GAME}"), Compose(*parts))


def bare_chain() -> Callable[[np.ndarray[Any, Any], float, torch.Tensor], None]:
    """Return the tensor operations of the chain for one frame, into a given row."""
    stack = torch.zeros(4, 84, 84)
    total, count = torch.zeros(1), torch.zeros(1, dtype=torch.int64)
    frames = not missing("CatFrames", CHAIN["CatFrames"])

    def run(frame: np.ndarray[Any, Any], reward: float, out: torch.Tensor) -> None:
        image = small(grey(torch.from_numpy(frame).movedim(-1, -3).div(255)))
        if frames:
            stack.copy_(torch.cat([stack[1:], image]))
            out.copy_(stack)
        else:
            out.copy_(image)
        total.add_(torch.tensor([reward]).clamp_(-1, 1))
        count.add_(1)

    return run


def raw_loop(steps: int, *, with_operations: bool) -> Callable[[], None]:
    """Step the raw library, with or without the bare operations."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(GAME)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 6, steps).tolist()
    operations = bare_chain()
    shape = (1 if missing("CatFrames", CHAIN["CatFrames"]) else 4, 84, 84)

    def run() -> None:
        out = torch.empty((steps, *shape))
        for t, action in enumerate(actions):
            frame, reward, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                frame, _ = env.reset()
            if with_operations:
                operations(frame, float(reward), out[t])

    return run


def step_loop(env: Any, given: Any) -> None:
    """Run a step loop as users write it."""
    root = env.reset()
    for action in given.unbind(0):
        root.update(action)
        _, root = env.step_and_maybe_reset(root)


def contest(contestants: dict[str, Contestant], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return CPU time and wall time of each contestant, in microseconds per frame.

    Each figure is a list, one value for each round.
    """
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
    for at in range(rounds + 1):
        for name, (run, frames, pids) in contestants.items():
            before, start = cpu_of(pids), time.perf_counter()
            run()
            found = (cpu_of(pids) - before) / frames * 1e6, (time.perf_counter() - start) / frames * 1e6
            if at:  # the first round is a warm-up
                figures[name].append(found)
    return figures


def cpu_of(pids: list[int]) -> float:
    """Return the seconds of CPU time of this process and of workers."""
    times = [psutil.Process(pid).cpu_times() for pid in [os.getpid(), *pids]]
    return sum(each.user + each.system for each in times)


def beside_the_limit(rounds: int, steps: int, n: int) -> None:
    """Print the table of the whole chain, compared to the limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ParallelEnv(n, make_chain) as env:
        env.set_seed(0)
        given = env.full_action_spec.rand((steps,))
        rollout = partial(env.rollout, steps, actions=given, break_when_any_done=False)
        contestants: dict[str, Contestant] = {
            "raw step": (raw_loop(4 * steps, with_operations=False), 4 * steps, []),
            LIMIT: (raw_loop(4 * steps, with_operations=True), 4 * steps, []),
            f"ParallelEnv({n}) with the chain, step loop": (
                partial(step_loop, env, given),
                n * steps,
                env.worker_pids,
            ),
            f"the same, a rollout that keeps {steps} steps": (rollout, n * steps, env.worker_pids),
        }
        figures = contest(contestants, rounds)
    rows = []
    limits = [used for used, _ in figures[LIMIT]]
    for name, found in figures.items():
        used = statistics.median(each for each, _ in found)
        of_cpu = statistics.median(limit / each for limit, (each, _) in zip(limits, found, strict=True))
        of_clock = statistics.median(limit / cores / each for limit, (_, each) in zip(limits, found, strict=True))
        rows.append([name, f"{used:.0f}", f"{of_cpu:.2f}", f"{of_clock:.2f}" if contestants[name][2] else ""])
    columns = ["what", "CPU us a frame", "of the limit, by CPU time", f"by the clock, on {cores} cores"]
    show(f"{GAME}, images of 84x84", columns, rows)


def make_preprocessed() -> Any:
    return TransformedEnv(make_env(f"gym:{GAME}", frameskip=1), steppe.atari_preprocessing())


def make_wrapped() -> Any:
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(GAME, frameskip=1)), 4)


def beside_wrappers(rounds: int, steps: int, n: int) -> None:
    """Print the table of atari_preprocessing, compared to gymnasium's wrappers."""
    import gymnasium

    with ExitStack() as stack:
        wrapped, game = make_wrapped(), stack.enter_context(make_preprocessed())
        vector = gymnasium.vector.AsyncVectorEnv([make_wrapped] * n)
        stack.callback(vector.close)
        batch = stack.enter_context(ParallelEnv(n, make_preprocessed))
        for env in (wrapped, vector):
            env.reset(seed=0)
        for env in (game, batch):
            env.set_seed(0)
        given, all_given = (env.full_action_spec.rand((steps,)) for env in (game, batch))

        def step_wrapped() -> None:
            for _ in range(steps):
                _, _, terminated, truncated, _ = wrapped.step(wrapped.action_space.sample())
                if terminated or truncated:
                    wrapped.reset()

        def step_vector() -> None:
            for _ in range(steps):
                vector.step(vector.action_space.sample())

        pids = [process.pid for process in vector.processes]
        keep = {"break_when_any_done": False}
        one: dict[str, Contestant] = {
            "gymnasium's wrappers, one game": (step_wrapped, steps, []),
            "atari_preprocessing, step loop": (partial(step_loop, game, given), steps, []),
            "atari_preprocessing, rollout": (partial(game.rollout, steps, actions=given, **keep), steps, []),
        }
        rollout = partial(batch.rollout, steps, actions=all_given, **keep)
        many: dict[str, Contestant] = {
            f"gymnasium's wrappers, AsyncVectorEnv({n})": (step_vector, n * steps, pids),
            f"atari_preprocessing, ParallelEnv({n}), step loop": (
                partial(step_loop, batch, all_given),
                n * steps,
                batch.worker_pids,
            ),
            f"atari_preprocessing, ParallelEnv({n}), rollout": (rollout, n * steps, batch.worker_pids),
        }
        rows = []
        for contestants in (one, many):
            figures = contest(contestants, rounds)
            first = next(iter(figures.values()))
            for name, found in figures.items():
                cpu, clock = (statistics.median(column) for column in zip(*found, strict=True))
                ratios = [
                    statistics.median(one[by] / other[by] for one, other in zip(first, found, strict=True))
                    for by in (0, 1)
                ]
                rows.append([name, f"{cpu:.0f}", f"{clock:.0f}", f"{ratios[0]:.2f}", f"{ratios[1]:.2f}"])
    columns = ["what", "CPU us a frame", "by the clock", "of gymnasium's speed, by CPU time", "by the clock"]
    show(f"{GAME}, stacks of 84x84x4", columns, rows)


def beside_torchrl(rounds: int, steps: int, n: int, python: str) -> None:
    """Print the table of the chain without Resize, compared to TorchRL."""
    with ExitStack() as stack:
        env = stack.enter_context(ParallelEnv(n, partial(make_chain, resized=False)))
        env.set_seed(0)
        given = env.full_action_spec.rand((steps,))
        peer = Peer(python, GAME, n, kind="atari", extra=[str(steps)])
        stack.callback(peer.close)
        peer.slice("torchrl")  # its workers have started now
        workers = [child.pid for child in psutil.Process(peer.process.pid).children(recursive=True)]
        ours, theirs = f"steppe, ParallelEnv({n})", f"TorchRL, ParallelEnv({n})"
        figures = contest(
            {
                ours: (partial(step_loop, env, given), n * steps, env.worker_pids),
                theirs: (partial(peer.slice, "torchrl"), n * steps, [peer.process.pid, *workers]),
            },
            rounds,
        )
    rows = []
    for name, found in figures.items():
        cpu, clock = (statistics.median(column) for column in zip(*found, strict=True))
        ratios = [
            statistics.median(one[by] / other[by] for one, other in zip(figures[theirs], found, strict=True))
            for by in (0, 1)
        ]
        rows.append([name, f"{cpu:.0f}", f"{clock:.0f}", f"{ratios[0]:.1f}", f"{ratios[1]:.1f}"])
    columns = ["step loop", "CPU us a frame", "by the clock", "of TorchRL's speed, by CPU time", "by the clock"]
    show(f"{GAME}, images of 210x160, without Resize", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--peer-python", default=None)
    parser.add_argument("--preprocessing", action="store_true", help="compare atari_preprocessing() only")
    args = parser.parse_args()
    if importlib.util.find_spec("ale_py") is None:
        parser.exit(message="this needs Atari's games: pip install ale-py\n")
    torch.set_num_threads(1)
    if args.preprocessing:
        beside_wrappers(args.rounds, args.steps, args.n)
        return
    beside_the_limit(args.rounds, args.steps, args.n)
    if args.peer_python is not None:
        beside_torchrl(args.rounds, args.steps, args.n, args.peer_python)
    for name, arguments in CHAIN.items():
        if message := missing(name, arguments):
            print(f"left out of the chain: {message}")


if __name__ == "__main__":
    main()
