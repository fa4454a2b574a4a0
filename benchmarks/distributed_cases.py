"""The cases of bench_distributed.py and scale_model.py: frames of any size, and what Ray carries alone."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDictBase

from steppe import ArrayEnv, Bounded, Categorical, Unbounded
from steppe.collectors import Collector, WorkersBackend
from steppe.specs import Composite

__all__ = ["Array", "Frames", "RayAlone", "cluster", "frames_per_second", "nbytes", "small_actors"]

#: A numpy view of an entry of a batch.
Array: TypeAlias = NDArray[np.generic]

#: Steps of an episode.
_EPISODE = 100


class Frames(ArrayEnv):
    """An environment whose observation has ``size`` bytes, and whose step takes ``seconds`` of a core."""

    def __init__(self, size: int, seconds: float = 0.0) -> None:
        super().__init__()
        self.observation_spec = Composite(observation=Bounded(0, 255, (size,), dtype=torch.uint8))
        self.action_spec, self.reward_spec = Categorical(2), Unbounded((1,))
        self._pixels = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8)
        self._seconds, self._steps = seconds, 0

    def reset_into(self, out: dict[str, Array], seed: int | None, env_info: object) -> None:
        self._steps = 0
        out["observation"][...] = self._pixels

    def step_into(self, action: int, out: dict[str, Array]) -> tuple[bool, bool]:
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass
        self._steps += 1
        out["observation"][...] = self._pixels
        out["reward"][...] = 1.0
        return self._steps >= _EPISODE, False


@contextmanager
def cluster(cpus: int = 2) -> Iterator[None]:
    """Start a cluster on this machine. Ray starts a process for each CPU before any is asked for, so there are few."""
    import ray

    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # Ray gives actors the priority of background work, so that all else on the machine would come before them alone.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ["RAY_TMPDIR"] = folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    ray.init(num_cpus=cpus, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def small_actors() -> dict[str, float]:
    """Return options of an actor that takes no whole core of the cluster."""
    return {"num_cpus": 0.05}


def nbytes(batch: TensorDictBase) -> int:
    """Return the number of bytes of a batch."""
    return sum(value.numel() * value.element_size() for value in batch.values(True, True))


def frames_per_second(collector: Collector, seconds: float = 0.3) -> Callable[[], float]:
    """Return a slice of work: collect for some seconds; its figure is in frames a second.

    Workers that do not wait for each other collect on between slices. The batches that they have ready when a slice
    begins are not counted. Those that they are at when it ends are, and the time until all are done: workers of equal
    speed finish at the same time, and a slice may end just before or after they do.
    """

    def run() -> float:
        backend = collector.backend
        working = backend.at_work if isinstance(backend, WorkersBackend) else set()
        begun, frames = time.perf_counter(), 0
        for _ in working:
            next(collector)
        while time.perf_counter() - begun < seconds or not frames:
            frames += next(collector).numel()
        if isinstance(backend, WorkersBackend):
            frames += len(backend.at_work) * collector.frames_per_batch
            backend.wait(backend.at_work)
        return frames / (time.perf_counter() - begun)

    return run


class _Holder:
    """An actor that puts the same bytes for each call."""

    def __init__(self, size: int) -> None:
        self._bytes = np.random.default_rng(0).integers(0, 255, size, dtype=np.uint8)

    def get(self) -> NDArray[np.uint8]:
        return self._bytes


class RayAlone:
    """A slice of work: Ray carries the bytes of batches from actors to this process, and nothing else.

    Args:
        actors: how many actors put.
        batch_bytes: the bytes of a batch of one actor.
        batch_frames: the frames that these bytes stand for.
        sync: get from all actors, then ask all again; or ask each again when its bytes have come.
        seconds: the length of the slice.

    Attributes:
        holders: the actors.
    """

    def __init__(self, actors: int, batch_bytes: int, batch_frames: int, *, sync: bool, seconds: float = 0.3) -> None:
        import ray

        self._frames, self._sync, self._seconds = batch_frames, sync, seconds
        self.holders = [ray.remote(_Holder).options(**small_actors()).remote(batch_bytes) for _ in range(actors)]
        ray.get([holder.get.remote() for holder in self.holders])

    def __call__(self) -> float:
        import ray

        begun, frames = time.perf_counter(), 0
        calls = {} if self._sync else {holder.get.remote(): holder for holder in self.holders}
        while time.perf_counter() - begun < self._seconds or not frames:
            if self._sync:
                ray.get([holder.get.remote() for holder in self.holders])
                frames += self._frames * len(self.holders)
                continue
            (ready,), _ = ray.wait(list(calls), num_returns=1)
            holder = calls.pop(ready)
            ray.get(ready)
            calls[holder.get.remote()] = holder
            frames += self._frames
        frames += self._frames * len(calls)
        ray.get(list(calls))
        return frames / (time.perf_counter() - begun)
