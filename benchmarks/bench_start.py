"""Measure the start of 8 workers, the first and later times, and their memory.

    python benchmarks/bench_start.py [--rounds 5] [--quick] [--peer-python PYTHON]

Each figure is measured in a new process that has imported its library and torch: seconds from the constructor to the
end of the first reset, and the proportional set size (PSS) of a worker after some steps, in which shared pages are
divided among the processes that share them. The batch has 8 CartPoles; contestants take turns. Linux only.
"""

from __future__ import annotations

import argparse
import atexit
import importlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")

N = 8
OURS = {
    "steppe ParallelEnv(8), 8 processes": {"num_processes": N},
    "steppe ParallelEnv(8)": {},
    "steppe ParallelEnv(8), spawn": {"num_processes": N, "mp_start_method": "spawn"},
    "steppe ParallelEnv(8), fork": {"num_processes": N, "mp_start_method": "fork"},
}
#: The same with a factory that is defined in a module of the caller, with the imports that such modules usually have.
OWN = "steppe ParallelEnv(8), 8 processes, factory of a module"
OWN_MODULE = """
import gymnasium
import numpy as np
import scipy.signal
import torch
from steppe import StepCounter, TransformedEnv
from steppe_gym import GymWrapper


class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)
    window = scipy.signal.windows.hann(5)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return np.zeros(4, np.float32), 1.0, False, False, {}


def make():
    return TransformedEnv(GymWrapper(Walk()), StepCounter(200))
"""
OTHERS = ("gymnasium AsyncVectorEnv(8)", "SB3 SubprocVecEnv(8)")
TORCHRL = "torchrl ParallelEnv(8)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round, without spawn: a smoke test")
    parser.add_argument("--peer-python", default=None)
    parser.add_argument("--one", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(measure(args.one)))
        return

    from common import show

    labels = [*OURS, OWN, *OTHERS, *([TORCHRL] if args.peer_python else [])]
    if args.quick:
        labels = [label for label in labels if "spawn" not in label]
    found: dict[str, list[list[float]]] = {label: [] for label in labels}
    for _ in range(1 if args.quick else args.rounds):
        for label, figures in found.items():
            python = args.peer_python if label == TORCHRL else sys.executable
            figures.append(in_new_process(python, label))
    rows = []
    for label, figures in found.items():
        first, again, pss = (statistics.median(column) for column in zip(*figures, strict=True))
        rows.append([label, f"{first:.2f}", f"{again:.2f}", f"{pss:.0f}"])
    show(
        "8 CartPoles: until the first reset, and memory", ["what", "first, s", "again, s", "PSS of a worker, MB"], rows
    )


def in_new_process(python: str, label: str) -> list[float]:
    """Measure one contestant in a new interpreter."""
    done = subprocess.run([python, __file__, "--one", label], capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(f"{label} failed:\n{done.stderr}")
    figures: list[float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(label: str) -> list[float]:
    """Return the seconds of the first and second start, and the memory in MB.

    The memory is that of a worker.
    """
    import torch

    torch.set_num_threads(1)
    make, pids, steps = contestant(label)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        env = make()
        env.reset()
        seconds.append(time.perf_counter() - start)
        steps(env)
        megabytes = statistics.mean(pss(pid) for pid in pids(env))
        env.close()
    return [*seconds, megabytes]


def contestant(label: str) -> tuple[Callable[[], Any], Callable[[Any], list[int]], Callable[[Any], None]]:
    """Return functions that make a batch, list its process ids, and step it."""
    if label in OURS or label == OWN:
        from steppe import ParallelEnv

        factory: Any = own_factory() if label == OWN else "gym:CartPole-v1"
        make: Callable[[], Any] = partial(ParallelEnv, N, factory, **OURS.get(label, {"num_processes": N}))
        return make, lambda env: env.worker_pids, lambda env: env.rollout(20, break_when_any_done=False)
    if label == TORCHRL:
        from torchrl.envs import GymEnv
        from torchrl.envs import ParallelEnv as Theirs

        make = partial(Theirs, N, partial(GymEnv, "CartPole-v1"))
        return make, lambda env: [w.pid for w in env._workers], lambda env: env.rollout(20, break_when_any_done=False)

    import gymnasium
    import numpy as np

    makers = [partial(gymnasium.make, "CartPole-v1")] * N

    def steps(env: Any) -> None:
        for _ in range(20):
            env.step(np.zeros(N, np.int64))

    if label.startswith("SB3"):
        from stable_baselines3.common.vec_env import SubprocVecEnv

        make = partial(SubprocVecEnv, makers)
    else:
        make = partial(gymnasium.vector.AsyncVectorEnv, makers)
    return make, lambda env: [process.pid for process in env.processes], steps


def own_factory() -> Callable[[], Any]:
    """Return a factory that is defined in a module in a temporary folder."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    Path(folder, "own_envs.py").write_text(OWN_MODULE)
    sys.path.insert(0, folder)
    make: Callable[[], Any] = importlib.import_module("own_envs").make
    return make


def pss(pid: int) -> float:
    """Return the proportional set size of a process in MB.

    Shared pages are divided among the processes that share them.
    """
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
