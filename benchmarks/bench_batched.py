"""Frames a second of batches, beside gymnasium's vector environments, SB3, EnvPool and TorchRL, on given actions.

    python benchmarks/bench_batched.py [--rounds 9] [--sets cartpole cartpole64 halfcheetah slow counter]
                                       [--peer-python PYTHON] [--plot FILE.png]

Contestants take turns in short slices; figures are medians, ratios are to AsyncVectorEnv(8). ``--peer-python`` names
the interpreter of an environment with TorchRL, which runs in a process of its own.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

warnings.filterwarnings("ignore")

SETS = ("cartpole", "cartpole64", "halfcheetah", "slow", "counter")


class Slow(gymnasium.Env):
    """An environment that computes for ``ms`` milliseconds a step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ms: float) -> None:
        self.seconds = ms / 1000

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return np.zeros(4, np.float32), 0.0, False, False, {}


def make_raw(name: str) -> Any:
    return Slow(float(name.split(":")[1])) if name.startswith("slow:") else gymnasium.make(name)


def make_ours(name: str, counter: bool = False) -> Any:
    from steppe import StepCounter, TransformedEnv
    from steppe_gym import GymWrapper

    env = GymWrapper(make_raw(name))
    return TransformedEnv(env, StepCounter(max_steps=200)) if counter else env


def steppe_slice(env: Any, batches: int) -> Callable[[], float]:
    env.set_seed(0)
    root = [env.reset()]
    actions = list(env.full_action_spec.rand((batches,))["action"].unbind(0))
    frames = env.batch_size[0] * batches

    def run() -> float:
        td = root[0]
        start = time.perf_counter()
        for action in actions:
            td["action"] = action
            _, td = env.step_and_maybe_reset(td)
        root[0] = td
        return frames / (time.perf_counter() - start)

    return run


def vector_slice(env: Any, n: int, batches: int, space: Any) -> Callable[[], float]:
    env.reset()
    actions = [np.stack([space.sample() for _ in range(n)]) for _ in range(batches)]

    def run() -> float:
        start = time.perf_counter()
        for action in actions:
            env.step(action)
        return n * batches / (time.perf_counter() - start)

    return run


def contestants(kind: str, peer: str | None) -> tuple[dict[str, Callable[[], float]], list[Any]]:
    """Slices by label, and what to close afterwards."""
    from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv

    name = {"halfcheetah": "HalfCheetah-v5", "slow": "slow:1"}.get(kind, "CartPole-v1")
    n = 64 if kind == "cartpole64" else 8
    batches = 30 if kind == "slow" else 100 if kind in ("cartpole64", "halfcheetah") else 300
    space = make_raw(name).action_space
    raws = [partial(make_raw, name)] * n
    asynchronous = gymnasium.vector.AsyncVectorEnv([partial(make_raw, name)] * 8)
    slices = {"gymnasium AsyncVectorEnv(8)": vector_slice(asynchronous, 8, max(20, batches // 3), space)}
    made: list[Any] = [asynchronous]

    def ours(label: str, env: Any) -> None:
        made.append(env)
        slices[label] = steppe_slice(env, batches)

    factory = partial(make_ours, name)
    ours(f"steppe ParallelEnv({n})", ParallelEnv(n, factory))
    if kind == "counter":
        ours("the same, StepCounter inside", ParallelEnv(n, partial(make_ours, name, True)))
        ours(
            "the same, StepCounter outside",
            TransformedEnv(ParallelEnv(n, factory), StepCounter(max_steps=200)),
        )
        return slices, made
    synchronous = gymnasium.vector.SyncVectorEnv(raws)
    made.append(synchronous)
    slices[f"gymnasium SyncVectorEnv({n})"] = vector_slice(synchronous, n, batches, space)
    ours(f"steppe SerialEnv({n})", SerialEnv(n, factory))
    if kind != "slow":
        others(slices, made, name, n, batches, space)
    if peer is not None and kind in ("cartpole", "halfcheetah"):
        from bench_step import Peer

        process = Peer(peer, name, 60, kind="batch", extra=[str(n)])
        made.append(process)
        for label in ("torchrl SerialEnv", "torchrl ParallelEnv"):
            slices[f"{label}({n})"] = lambda label=label: process.slice(label)
    return slices, made


def others(slices: dict[str, Any], made: list[Any], name: str, n: int, batches: int, space: Any) -> None:
    """SB3 and EnvPool, where they are installed."""
    try:
        from stable_baselines3.common.vec_env import SubprocVecEnv
    except ImportError:
        pass
    else:
        env = SubprocVecEnv([partial(make_raw, name)] * n)
        made.append(env)
        slices[f"SB3 SubprocVecEnv({n})"] = vector_slice(env, n, max(20, batches // 5), space)
    try:
        import envpool
    except ImportError:
        return
    pool = envpool.make(name.replace("-v5", "-v4"), env_type="gymnasium", num_envs=n)
    slices[f"EnvPool({n})"] = vector_slice(pool, n, batches, space)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--peer-python", default=None)
    parser.add_argument("--plot", default=None)
    args = parser.parse_args()

    import torch
    from common import Contest, show

    torch.set_num_threads(1)
    rows, bars = [], []
    for kind in args.sets:
        slices, made = contestants(kind, args.peer_python)
        contest = Contest(kind, "frames/s", entries=slices)
        medians = contest.run(args.rounds)
        for env in made:
            env.close()
        base = medians["gymnasium AsyncVectorEnv(8)"]
        for label, value in medians.items():
            rows.append([kind, label, f"{value:,.0f}", f"{value / base:.2f}x"])
            bars.append((f"{kind}: {label}", value / base))
    show("frames a second, given actions", ["set", "contestant", "median", "of Async(8)"], rows)
    if args.plot:
        plot(bars, args.plot)


def plot(bars: list[tuple[str, float]], path: str) -> None:
    """Draw the ratios."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.35 * len(bars) + 1))
    axes.barh([label for label, _ in bars][::-1], [ratio for _, ratio in bars][::-1])
    axes.set_xlabel("frames a second, relative to gymnasium AsyncVectorEnv(8)")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
