"""Schedules: when the workers of a collector begin a batch, and which of their batches are delivered together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors.worker_group import WorkerGroup
from steppe.envs import stack_frames
from steppe.errors import SpecError

__all__ = ["Continuous", "Lockstep", "Schedule"]


class Schedule(ABC):
    """Decides when workers begin batches, and what a batch of the collector is made of.

    Args:
        group: the workers.
        frames_per_worker: frames in a batch of each worker.
        rows: the batch size of the environment of a worker.
        update: called before a worker begins a batch, to take over the weights of the caller's policy.
    """

    def __init__(
        self, group: WorkerGroup, frames_per_worker: list[int], rows: torch.Size, update: Callable[[], None]
    ) -> None:
        self.group, self.frames_per_worker, self.rows, self.update = group, frames_per_worker, rows, update

    @property
    @abstractmethod
    def frames_per_batch(self) -> int:
        """Frames in a batch of the collector."""

    @abstractmethod
    def collect(self, random: bool, *, lost: Callable[[], None]) -> tuple[TensorDictBase, int]:
        """Collect a batch.

        Args:
            random: take random actions.
            lost: called before the data of a worker is taken: from then on an interrupt loses it.

        Returns:
            The batch and its number of frames.
        """

    @abstractmethod
    def begin_at(self, frames: int) -> None:
        """Continue as if this many frames had been collected."""


class Lockstep(Schedule):
    """Delivers a batch when all workers have theirs, and lets them wait: all data is made with the newest weights.

    Args:
        *args: see :class:`Schedule`.
        name: of the collector, for errors.
        cat_results: ``"stack"``, 0 or -1: how the batches of the workers are put together.
        preemptive_threshold: the part of the workers that must have their batch; the others then end theirs.
        same_storage: deliver the shared memory itself where that is possible.
    """

    def __init__(
        self,
        *args: Any,
        name: str,
        cat_results: str | int,
        preemptive_threshold: float,
        same_storage: bool,
    ) -> None:
        super().__init__(*args)
        self._cat_results, self._threshold, self._same_storage = cat_results, preemptive_threshold, same_storage
        if len(set(self.frames_per_worker)) > 1 and (cat_results == "stack" or (cat_results == 0 and self.rows)):
            raise SpecError(
                f"{name}: batches of {self.frames_per_worker} frames cannot be put together with "
                f"cat_results={cat_results!r}: take -1."
            )

    @property
    def frames_per_batch(self) -> int:
        return sum(self.frames_per_worker)

    def collect(self, random: bool, *, lost: Callable[[], None]) -> tuple[TensorDictBase, int]:
        self.update()
        group, everyone = self.group, set(range(self.group.n))
        group.begin(everyone, random=random)
        needed = math.ceil(self._threshold * group.n)
        if needed < group.n:
            group.wait(count=max(needed, 1))
            group.interrupt()
        group.wait(everyone)
        lost()
        whole = group.take_all() if self._cat_results != -1 and self._threshold == 1.0 else None
        if whole is not None:
            # One copy of the data of all workers; flattening it afterwards makes a view.
            batch = whole if self._same_storage else whole.clone()
            if self._cat_results == 0:
                batch = batch.flatten(0, 1)
            return _named(batch), self.frames_per_batch
        batches, steps = group.take(sorted(everyone))
        frames = sum(steps) * self.rows.numel()
        if self._cat_results == "stack":
            return _named(stack_frames(batches, 0)), frames
        along_time = self._cat_results == -1 or not self.rows
        if along_time:
            batches = [batch[..., :count] for batch, count in zip(batches, steps, strict=True)]
        return _named(_joined(batches, -1 if along_time else 0)), frames

    def begin_at(self, frames: int) -> None:
        pass  # the collector counts


class Continuous(Schedule):
    """Delivers the batch of whichever worker has one, and lets that worker continue at once.

    Args:
        *args: see :class:`Schedule`.
        init_random_frames: how many of the first frames take random actions.
    """

    def __init__(self, *args: Any, init_random_frames: int) -> None:
        super().__init__(*args)
        self._init_random_frames = init_random_frames
        self._next_worker = self._begun = 0

    @property
    def frames_per_batch(self) -> int:
        return max(self.frames_per_worker)

    def collect(self, random: bool, *, lost: Callable[[], None]) -> tuple[TensorDictBase, int]:
        group = self.group
        self._begin(range(group.n))
        ready = group.wait()
        # The worker that has waited longest comes first, so that a fast worker does not keep the others waiting.
        worker = min(ready, key=lambda each: (each - self._next_worker) % group.n)
        self._next_worker = worker + 1
        lost()
        (batch,), (steps,) = group.take([worker])
        batch = _named(batch.clone())
        self.update()
        self._begin([worker])
        return batch, steps * self.rows.numel()

    def _begin(self, workers: Iterable[int]) -> None:
        """Let the idle ones of some workers begin a batch. Frames count from when they are begun, not delivered."""
        for worker in set(workers) - self.group.at_work:
            self.group.begin([worker], random=self._begun < self._init_random_frames)
            self._begun += self.frames_per_worker[worker]

    def begin_at(self, frames: int) -> None:
        self._begun = frames


def _joined(batches: list[TensorDictBase], dim: int) -> TensorDictBase:
    """Concatenate the batches of workers, lazily if the shapes of their entries differ."""
    if len(batches) == 1:
        return batches[0].clone()
    try:
        return cat_tds(batches, dim)
    except RuntimeError:
        at = dim % batches[0].batch_dims
        return stack_frames([frame for batch in batches for frame in batch.unbind(at)], at)


def _named(batch: TensorDictBase) -> TensorDictBase:
    """Name the dimension of time, which is the last."""
    batch.names = [None] * (batch.batch_dims - 1) + ["time"]
    return batch
