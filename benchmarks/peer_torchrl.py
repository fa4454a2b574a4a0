"""TorchRL's side of a benchmark: read labels of slices, write figures."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial

warnings.filterwarnings("ignore")


def step_slices(name: str, steps: int) -> dict:
    import torch
    from torchrl.envs import Compose, DoubleToFloat, GymEnv, RewardSum, StepCounter, TransformedEnv

    torch.set_num_threads(1)
    env = GymEnv(name)
    transformed = TransformedEnv(GymEnv(name), Compose(RewardSum(), StepCounter(), DoubleToFloat()))
    given = [env.action_spec.rand() for _ in range(steps)]

    def loop() -> float:
        td = env.reset()
        start = time.perf_counter()
        for action in given:
            td["action"] = action
            _, td = env.step_and_maybe_reset(td)
        return (time.perf_counter() - start) / steps * 1e6

    def rollout(which: object) -> float:
        replay = iter(given)
        start = time.perf_counter()
        which.rollout(steps, lambda td: td.set("action", next(replay)), break_when_any_done=False)  # type: ignore
        return (time.perf_counter() - start) / steps * 1e6

    return {
        "torchrl loop": loop,
        "torchrl rollout": lambda: rollout(env),
        "torchrl rollout + 3 transforms": lambda: rollout(transformed),
    }


def batch_slices(name: str, n: int) -> dict:
    import torch
    from torchrl.envs import ParallelEnv, SerialEnv

    torch.set_num_threads(1)
    made: dict = {}

    def slice_(cls: type) -> float:
        if cls not in made:
            made[cls] = cls(n, partial(wrapped, name))
            made[cls].reset()
            CLOSERS.append(made[cls].close)
        env = made[cls]
        td = env.reset()
        action = env.action_spec.rand()
        steps, start = 0, time.perf_counter()
        while time.perf_counter() - start < 0.2:
            td["action"] = action
            _, td = env.step_and_maybe_reset(td)
            steps += 1
        return n * steps / (time.perf_counter() - start)

    return {"torchrl SerialEnv": lambda: slice_(SerialEnv), "torchrl ParallelEnv": lambda: slice_(ParallelEnv)}


def failure_slices(path: str, n: int) -> dict:
    import os

    from torchrl.envs import ParallelEnv

    def slice_() -> float:
        env = ParallelEnv(n, [partial(wrapped, "slow:0")] * (n - 1) + [partial(wrapped, f"raising:{path}")])
        td = env.reset()
        # The worker prints its errors to the stream of the figures.
        devnull, kept = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
        os.dup2(devnull, 1), os.dup2(devnull, 2)
        try:
            for _ in range(10):
                td = env.step_and_maybe_reset(env.rand_action(td))[1]
        except Exception:
            end = time.monotonic()
        finally:
            try:
                env.close()
            except Exception:
                pass
            os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        with open(path) as file:
            return (end - float(file.read())) * 1000

    return {"torchrl ParallelEnv": slice_}


def transform_slices(name: str, steps: int) -> dict:
    """Measure rollouts of a constant environment, without and with a transform."""
    import torch
    import torchrl.envs as library
    from tensordict import TensorDict
    from torchrl.data import Bounded, Composite, Unbounded
    from transform_cases import CASES, value_of

    torch.set_num_threads(1)
    arguments, entries = CASES[name]
    values = {key: value_of(*entry) for key, entry in entries.items()}

    class Still(library.EnvBase):
        def __init__(self) -> None:
            super().__init__(batch_size=[])
            self.observation_spec = Composite(
                {
                    key: Bounded(0, 255, shape, dtype=dtype) if dtype is torch.uint8 else Unbounded(shape, dtype=dtype)
                    for key, (shape, dtype) in entries.items()
                }
            )
            self.action_spec, self.reward_spec = Bounded(-1.0, 1.0, (1,)), Unbounded((1,))

        def _data(self) -> dict:
            flags = {key: torch.zeros(1, dtype=torch.bool) for key in ("done", "terminated")}
            return {**{key: value.clone() for key, value in values.items()}, **flags}

        def _reset(self, tensordict=None, **kwargs):
            return TensorDict(self._data(), [])

        def _step(self, tensordict):
            return TensorDict({**self._data(), "reward": torch.full((1,), 0.5)}, [])

        def _set_seed(self, seed):
            pass

    plain = Still()
    transformed = library.TransformedEnv(Still(), getattr(library, name)(**arguments))

    def rollout(env: object) -> float:
        start = time.process_time()
        env.rollout(steps, break_when_any_done=False)  # type: ignore
        return (time.process_time() - start) / steps * 1e6

    return {"without": lambda: rollout(plain), "with": lambda: rollout(transformed)}


def atari_slices(name: str, steps: int, n: int) -> dict:
    """Measure a step loop over workers with image transforms except Resize."""
    import torch
    from torchrl.envs import ParallelEnv

    torch.set_num_threads(1)
    env = ParallelEnv(n, partial(atari_chain, name))
    CLOSERS.append(env.close)
    env.set_seed(0)
    given = [env.full_action_spec.rand() for _ in range(steps)]

    def loop() -> float:
        start = time.perf_counter()
        root = env.reset()
        for action in given:
            root.update(action)
            _, root = env.step_and_maybe_reset(root)
        return (time.perf_counter() - start) / (n * steps) * 1e6

    return {"torchrl": loop}


def atari_chain(name: str) -> object:
    """A game of Atari with transforms."""
    import ale_py
    import gymnasium
    import torch
    from torchrl.envs import (
        CatFrames,
        Compose,
        GrayScale,
        GymEnv,
        RewardClipping,
        RewardSum,
        StepCounter,
        ToTensorImage,
        TransformedEnv,
    )

    torch.set_num_threads(1)
    gymnasium.register_envs(ale_py)
    keys = ["pixels"]  # TorchRL's name for an observation that is an image
    images = [ToTensorImage(in_keys=keys), GrayScale(in_keys=keys), CatFrames(N=4, dim=-3, in_keys=keys)]
    return TransformedEnv(GymEnv(name), Compose(*images, RewardClipping(-1.0, 1.0), RewardSum(), StepCounter()))


def collect_slices(name: str, n: int, kind: str, batches: int, steps: int) -> dict:
    """Measure the collector in this process, with one kind of policy."""
    import torch
    from bench_collect import Greedy, make_actor, make_net, sizes
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.envs import GymEnv, SerialEnv

    torch.set_num_threads(1)
    size, outputs, discrete = sizes(name)
    encoding = {"categorical_action_encoding": True} if discrete else {}
    make = partial(GymEnv, name, **encoding)
    if kind == "random":
        policy: object = None
    elif kind == "deterministic":
        policy = TensorDictModule(Greedy(make_net(size, outputs), discrete), ["observation"], ["action"])
    else:
        policy = make_actor(make_net(size, outputs if discrete else 2 * outputs), discrete)
    env = SerialEnv(n, make) if n > 1 else make()
    collector = Collector(env, policy, frames_per_batch=n * steps, total_frames=-1)
    running = iter(collector)
    CLOSERS.append(collector.shutdown)

    def slice_() -> float:
        start = time.perf_counter()
        for _ in range(batches):
            next(running)
        return batches * steps * n / (time.perf_counter() - start)

    return {"torchrl": slice_}


def replay_slices(row: str, _: int) -> dict:
    import numpy as np
    import torch
    from replay_cases import BATCH, N_IMAGES, N_VECTORS, SLICES, chunks, entries, slice_of, transitions

    with redirect_stdout(sys.stderr):  # it logs that its extension was built for another torch, if it was
        from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        from torchrl.data.replay_buffers import RandomSampler, SliceSampler

    torch.set_num_threads(1)
    images = row == "images"
    n = N_IMAGES if images else N_VECTORS
    sampler = SliceSampler(num_slices=SLICES, end_key=("next", "done")) if row == "slices" else RandomSampler()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(n), sampler=sampler, batch_size=BATCH)
    data = entries(n, (4, 84, 84), np.uint8) if images else entries(n, (11,), np.float32)
    for part in chunks(data, 10_000):
        buffer.extend(transitions(part))
    if row == "extend":
        batch = transitions(entries(1_000, (11,), np.float32))
        return {row: slice_of(lambda: buffer.extend(batch))}
    return {row: slice_of(buffer.sample)}


def ray_slices(size: str, frames: int, actors: int) -> dict:
    """Measure collectors over actors of Ray, and over processes, with frames of any size."""
    import torch
    from tensordict import TensorDict
    from torchrl.collectors import MultiSyncCollector
    from torchrl.collectors.distributed import RayCollector
    from torchrl.data import Bounded, Categorical, Composite, Unbounded
    from torchrl.envs import EnvBase

    class Frames(EnvBase):
        def __init__(self) -> None:
            super().__init__(batch_size=[])
            self._pixels = torch.randint(0, 255, (int(size),), dtype=torch.uint8)
            self.observation_spec = Composite(observation=Bounded(0, 255, (int(size),), dtype=torch.uint8))
            self.action_spec, self.reward_spec = Categorical(2), Unbounded((1,))
            self._steps = 0

        def _data(self, done: bool) -> dict:
            flags = {key: torch.full((1,), done) for key in ("done", "terminated")}
            return {"observation": self._pixels.clone(), **flags}

        def _reset(self, tensordict=None, **kwargs):
            self._steps = 0
            return TensorDict(self._data(False), [])

        def _step(self, tensordict):
            self._steps += 1
            return TensorDict({**self._data(self._steps >= 100), "reward": torch.ones(1)}, [])

        def _set_seed(self, seed):
            pass

    torch.set_num_threads(1)
    arguments = {"frames_per_batch": frames, "total_frames": 10**9}
    config = {"num_cpus": 0.05, "num_gpus": 0, "memory": 10**8}
    cluster = {"address": "local", "num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    with redirect_stdout(sys.stderr):
        remote = RayCollector([Frames] * actors, sync=True, ray_init_config=cluster, remote_configs=config, **arguments)
        local = MultiSyncCollector([Frames] * actors, **arguments)
    CLOSERS.extend([remote.shutdown, local.shutdown])
    running = {"torchrl RayCollector": iter(remote), "torchrl processes": iter(local)}

    def slice_(collector: object) -> float:
        begun, collected = time.perf_counter(), 0
        while (took := time.perf_counter() - begun) < 0.3 or not collected:
            with redirect_stdout(sys.stderr):
                collected += next(collector).numel()  # type: ignore
        return collected / took

    return {name: partial(slice_, collector) for name, collector in running.items()}


def wrapped(name: str) -> object:
    from bench_envs import make_raw
    from torchrl.envs import GymWrapper

    return GymWrapper(make_raw(name))


# Objects with workers, for which the interpreter would wait forever at its end.
CLOSERS: list[Callable[[], object]] = []


def main() -> None:
    kind, name, *numbers = sys.argv[1:]
    made = {
        "step": step_slices,
        "batch": batch_slices,
        "failure": failure_slices,
        "transform": transform_slices,
        "collect": collect_slices,
        "replay": replay_slices,
        "atari": atari_slices,
        "ray": ray_slices,
    }[kind]
    slices = made(name, *(int(number) if number.isdecimal() else number for number in numbers))
    for line in sys.stdin:
        print(json.dumps(slices[json.loads(line)]()), flush=True)
    for close in CLOSERS:
        close()


if __name__ == "__main__":
    main()
