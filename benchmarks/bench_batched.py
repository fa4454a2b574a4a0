"""Compare batches with gymnasium, SB3, EnvPool and TorchRL, in frames per second.

    python benchmarks/bench_batched.py [--sets cartpole halfcheetah dm-cheetah image slow0.1 slow1 counter minigrid
                                       failures] [--n 8 64] [--rounds 9] [--quick] [--peer-python PYTHON]
                                       [--plot FILE.png] [--write FILE.json] [--read FILE.json]

All contestants step the same actions. They take turns in short slices; figures are medians, and ratios are to
AsyncVectorEnv(8) in the same turns. The set ``counter`` has a StepCounter inside and outside of the batch. The set
``minigrid`` compares MiniGrid with and without its text ``mission``, in single steps and in rollouts; its ratios are to
single steps without text. The set ``failures`` measures the time from an exception in a worker to the caller, in
milliseconds. ``--peer-python`` names an interpreter with TorchRL, which runs in a separate process. Its ParallelEnv is
measured only for n up to 8, because it has a process of hundreds of megabytes for each environment. ``--write`` keeps
the ratios, and ``--read`` draws those of a file instead of measuring: docs/speed.png shows benchmarks/batches.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from bench_envs import make_raw

warnings.filterwarnings("ignore")

NAMES = {
    "cartpole": "CartPole-v1",
    "halfcheetah": "HalfCheetah-v5",
    "dm-cheetah": "dm:cheetah-run",
    "image": "image",
    "slow0.1": "slow:0.1",
    "slow1": "slow:1",
    "counter": "CartPole-v1",
    "minigrid": "MiniGrid-Empty-8x8-v0",
}
SETS = (*NAMES, "failures")
BASE = "gymnasium AsyncVectorEnv(8)"
#: The contestant that the ratios of a set are to, if not AsyncVectorEnv.
BASES = {"minigrid": "steppe ParallelEnv, no mission"}
ROLLOUT = 32  # steps of a rollout in the set ``minigrid``


def make_ours(name: str, counter: bool = False) -> Any:
    """Wrap an environment of the benchmark for steppe."""
    from steppe import StepCounter, TransformedEnv, make_env
    from steppe_gym import GymWrapper

    env = make_env(name) if name.startswith("dm:") else GymWrapper(make_raw(name))
    return TransformedEnv(env, StepCounter(max_steps=200)) if counter else env


def make_minigrid(*, text: bool) -> Any:
    """Make MiniGrid, with or without the text in its observations."""
    import minigrid  # noqa: F401 - registers the ids

    from steppe_gym import GymWrapper

    env = gymnasium.make(NAMES["minigrid"])
    return GymWrapper(env if text else gymnasium.wrappers.FilterObservation(env, ["direction", "image"]))


class Slices:
    """Slices of about equal time from functions that step a whole batch once.

    Args:
        seconds: duration of a slice.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.entries: dict[str, Callable[[], float]] = {}
        self.closers: list[Callable[[], Any]] = []

    def add(self, label: str, n: int, step: Callable[[], Any], close: Callable[[], Any] | None = None) -> None:
        """Add a batch of ``n`` environments."""
        times: list[int] = []

        def run() -> float:
            if not times:  # the first slice determines the number of steps in a slice
                for _ in range(3):
                    step()
                start = time.perf_counter()
                for _ in range(5):
                    step()
                times.append(max(3, int(5 * self.seconds / (time.perf_counter() - start))))
            start = time.perf_counter()
            for _ in range(times[0]):
                step()
            return n * times[0] / (time.perf_counter() - start)

        self.entries[label] = run
        if close is not None:
            self.closers.append(close)

    def steppe(self, label: str, env: Any) -> None:
        """Add a batch of steppe."""
        env.set_seed(0)
        root = [env.reset()]
        actions = cycle(env.full_action_spec.rand((32,))["action"].unbind(0))

        def step() -> None:
            td = root[0]
            td["action"] = next(actions)
            root[0] = env.step_and_maybe_reset(td)[1]

        self.add(f"{label}({env.batch_size[0]})", env.batch_size[0], step, env.close)

    def rollout(self, label: str, env: Any) -> None:
        """Add rollouts of a batch of steppe, with random actions."""
        env.set_seed(0)
        n = env.batch_size[0]
        self.add(
            f"{label}({n})",
            n * ROLLOUT,
            lambda: env.rollout(ROLLOUT, break_when_any_done=False),
            env.close,
        )

    def vector(self, label: str, env: Any, n: int, space: Any) -> None:
        """Add a batch with the interface of gymnasium or SB3."""
        env.reset()
        actions = cycle([np.stack([space.sample() for _ in range(n)]) for _ in range(32)])
        self.add(f"{label}({n})", n, lambda: env.step(next(actions)), getattr(env, "close", None))

    def close(self) -> None:
        """Close all batches."""
        for close in self.closers:
            close()


def enter(slices: Slices, kind: str, n: int, peer: str | None) -> None:
    """Add all contestants of a set."""
    from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv

    if kind == "minigrid":
        for label, text in (("", True), (", no mission", False)):
            make = partial(make_minigrid, text=text)
            slices.steppe(f"steppe ParallelEnv{label}", ParallelEnv(n, make))
            slices.rollout(f"steppe ParallelEnv, rollout{label}", ParallelEnv(n, make))
            slices.steppe(f"steppe SerialEnv{label}", SerialEnv(n, make))
        return
    name = NAMES[kind]
    space = make_raw(name).action_space
    raw, factory = partial(make_raw, name), partial(make_ours, name)
    for size in dict.fromkeys((8, n)):
        slices.vector("gymnasium AsyncVectorEnv", gymnasium.vector.AsyncVectorEnv([raw] * size), size, space)
    slices.steppe("steppe ParallelEnv", ParallelEnv(n, factory))
    if kind == "counter":
        inside = partial(make_ours, name, True)
        slices.steppe("steppe ParallelEnv, StepCounter inside", ParallelEnv(n, inside))
        outside = TransformedEnv(ParallelEnv(n, factory), StepCounter(max_steps=200))
        slices.steppe("steppe ParallelEnv, StepCounter outside", outside)
        return
    slices.steppe("steppe ParallelEnv, caller_share", ParallelEnv(n, factory, caller_share=True))
    slices.vector("gymnasium SyncVectorEnv", gymnasium.vector.SyncVectorEnv([raw] * n), n, space)
    slices.steppe("steppe SerialEnv", SerialEnv(n, factory))
    enter_sb3(slices, raw, n, space)
    enter_envpool(slices, name, n, space)
    if peer is not None and kind != "dm-cheetah":  # the peer makes its environments with gymnasium
        from peer import Peer

        process = Peer(peer, name, n, kind="batch")
        slices.closers.append(process.close)
        for label in ("torchrl SerialEnv", *(["torchrl ParallelEnv"] if n <= 8 else [])):
            slices.entries[f"{label}({n})"] = partial(process.slice, label)


def enter_sb3(slices: Slices, raw: Callable[[], Any], n: int, space: Any) -> None:
    """Add both batches of SB3, if it is installed."""
    try:
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
    except ImportError:
        return
    slices.vector("SB3 DummyVecEnv", DummyVecEnv([raw] * n), n, space)
    slices.vector("SB3 SubprocVecEnv", SubprocVecEnv([raw] * n), n, space)


def enter_envpool(slices: Slices, name: str, n: int, space: Any) -> None:
    """Add EnvPool, without and with steppe's plugin, if it has the task."""
    try:
        import envpool
    except ImportError:
        return
    task = name.replace("-v5", "-v4")
    if task not in envpool.list_all_envs():
        return
    slices.vector("EnvPool", envpool.make(task, env_type="gymnasium", num_envs=n), n, space)
    try:
        from steppe_envpool import MultiThreadedEnv
    except ImportError:
        return
    slices.steppe("steppe MultiThreadedEnv", MultiThreadedEnv(n, task))
    slices.steppe("steppe MultiThreadedEnv, raw_rows", MultiThreadedEnv(n, task, raw_rows=True))


# -- failures


def failures(times: int, peer: str | None) -> dict[str, list[float]]:
    """Measure the time from an exception in a worker to the caller.

    Returns milliseconds by contestant.
    """
    from steppe import ParallelEnv

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "when")
        raising: list[Any] = [partial(make_ours, "slow:0")] * 7 + [partial(make_ours, f"raising:{path}")]
        raws = [partial(make_raw, "slow:0")] * 7 + [partial(make_raw, f"raising:{path}")]
        makers = {
            "steppe ParallelEnv(8)": (partial(ParallelEnv, 8, raising), step_ours),
            "steppe ParallelEnv(8), 8 processes": (partial(ParallelEnv, 8, raising, num_processes=8), step_ours),
            BASE: (partial(gymnasium.vector.AsyncVectorEnv, raws), step_vector),
        }
        found = {label: [delay(path, *maker) for _ in range(times)] for label, maker in makers.items()}
        try:
            from stable_baselines3.common.vec_env import SubprocVecEnv
        except ImportError:
            pass
        else:
            few = max(2, times // 5)
            make = partial(SubprocVecEnv, raws)
            found["SB3 SubprocVecEnv(8)"] = [delay(path, make, step_vector) for _ in range(few)]
        if peer is not None:
            from peer import Peer

            process = Peer(peer, path, 8, kind="failure")
            found["torchrl ParallelEnv(8)"] = [process.slice("torchrl ParallelEnv") for _ in range(3)]
            process.close()
    return found


def delay(path: str, make: Callable[[], Any], use: Callable[[Any], None]) -> float:
    """Step a new batch until it raises an error.

    Returns milliseconds since the time in the file.
    """
    devnull, kept = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(devnull, 2)  # some workers print their errors
    env = make()
    try:
        use(env)
    except Exception:
        end = time.monotonic()
    else:
        raise RuntimeError("the batch did not raise")
    finally:
        if hasattr(env, "remotes"):  # SB3's close would wait forever for the worker that has ended
            for process in env.processes:
                process.kill()
        else:
            env.close()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(devnull)
    with open(path) as file:
        return (end - float(file.read())) * 1000


def step_ours(env: Any) -> None:
    """Step until an error, for a limited time."""
    td = env.reset()
    for _ in range(10):
        td = env.step_and_maybe_reset(env.rand_action(td))[1]


def step_vector(env: Any) -> None:
    """Step until an error, for a limited time."""
    env.reset()
    for _ in range(10):
        env.step(np.zeros(8, np.int64))


# -- output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--n", nargs="*", type=int, default=[8, 64])
    parser.add_argument("--quick", action="store_true", help="3 rounds of short slices: a smoke test")
    parser.add_argument("--peer-python", default=None)
    parser.add_argument("--plot", default=None)
    parser.add_argument("--write", default=None)
    parser.add_argument("--read", default=None)
    args = parser.parse_args()
    if args.read:
        if not args.plot:
            parser.error("--read needs --plot, the file to draw to")
        plot(json.loads(Path(args.read).read_text(encoding="utf-8")), args.plot)
        return

    import torch
    from common import Contest, show

    torch.set_num_threads(1)
    rounds = min(args.rounds, 3) if args.quick else args.rounds
    groups: dict[str, dict[str, float]] = {}
    rows = []
    for kind in (kind for kind in args.sets if kind != "failures"):
        for n in args.n if kind not in ("counter", *BASES) else args.n[:1]:
            slices = Slices(0.03 if args.quick else 0.2)
            try:
                enter(slices, kind, n, args.peer_python)
                medians = Contest(kind, "frames/s", entries=slices.entries).run(rounds)
            finally:
                slices.close()
            base = medians[f"{BASES[kind]}({n})" if kind in BASES else BASE]
            groups[f"{kind}, n={n}"] = {label: value / base for label, value in medians.items()}
            rows += [
                [f"{kind}, n={n}", label, f"{value:,.0f}", f"{value / base:.2f}x"] for label, value in medians.items()
            ]
    if rows:
        show("frames a second, given actions", ["set", "contestant", "median", "ratio"], rows)
    if "failures" in args.sets:
        found = failures(5 if args.quick else 50, args.peer_python)
        rows = [
            [label, str(len(each)), f"{statistics.median(each):.2f}", f"{np.percentile(each, 99):.2f}"]
            for label, each in found.items()
        ]
        show("ms from a worker's exception to the caller", ["contestant", "times", "median", "99 %"], rows)
    if args.write:
        Path(args.write).write_text(json.dumps(groups, indent=1) + "\n", encoding="utf-8")
    if args.plot and groups:
        plot(groups, args.plot)


def plot(groups: dict[str, dict[str, float]], path: str) -> None:
    """Draw the ratios of each set."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Readable on light and dark pages.
    colours = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    pyplot.rcParams.update(dict.fromkeys(colours, "#7d7d7d"))
    heights = [len(bars) for bars in groups.values()]
    size = (9, 0.28 * sum(heights) + 0.8 * len(heights))
    figure, panels = pyplot.subplots(len(groups), figsize=size, height_ratios=heights, squeeze=False)
    for axes, (title, bars) in zip(panels[:, 0], groups.items(), strict=True):
        labels = list(bars)[::-1]
        fills = ["tab:blue" if label.startswith("steppe") else "tab:gray" for label in labels]
        drawn = axes.barh(labels, [bars[label] for label in labels], color=fills)
        axes.spines[["top", "right"]].set_visible(False)
        axes.bar_label(drawn, fmt="%.2f", padding=3)
        axes.set_title(f"{title}: frames a second, of AsyncVectorEnv(8)", loc="left", fontsize=10)
        axes.margins(x=0.12)
    figure.tight_layout()
    figure.savefig(path, transparent=True)


if __name__ == "__main__":
    main()
