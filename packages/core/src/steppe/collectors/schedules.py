"""Schedules: when the workers of a collector begin a batch, and which of their batches are delivered together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch
from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors.worker_group import WorkerGroup
from steppe.envs import stack_frames
from steppe.errors import SpecError

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["Continuous", "Lockstep", "Schedule"]


class Schedule(ABC):
    """Decides when workers begin batches, and what a batch of the collector is made of.

    Args:
        collector: the collector, whose arguments this follows.
        group: its workers.
        update: called before a worker begins a batch, to take over the weights of the caller's policy.

    Attributes:
        frames_per_batch: frames in a batch of the collector.
        frames_per_worker: frames in a batch of each worker.
        rows: the batch size of the environment of a worker.
        begun: how many frames are in the batches that workers have begun, where batches are begun one by one.
    """

    frames_per_batch: int

    def __init__(self, collector: Collector, group: WorkerGroup, update: Callable[[], None]) -> None:
        self.group, self.update, self.begun = group, update, 0
        self.frames_per_worker = [report.frames for report in group.reports]
        self.rows = torch.Size(group.reports[0].batch_size)

    @abstractmethod
    def collect(self, random: bool, *, lost: Callable[[], None]) -> tuple[TensorDictBase, int]:
        """Collect a batch.

        Args:
            random: take random actions.
            lost: called before the data of a worker is taken: from then on an interrupt loses it.

        Returns:
            The batch and its number of frames.
        """


class Lockstep(Schedule):
    """Delivers a batch when all workers have theirs, and lets them wait: all data is made with the newest weights."""

    def __init__(self, collector: Collector, group: WorkerGroup, update: Callable[[], None]) -> None:
        super().__init__(collector, group, update)
        self.frames_per_batch = sum(self.frames_per_worker)
        self._threshold, self._same_storage = float(collector.preemptive_threshold), collector.return_same_td
        # A collector without a schedule of its own has the environments of all workers as its rows.
        by_rows: str | int = 0 if self.rows else "stack"
        joined = self._cat_results = by_rows if collector.schedule is None else collector.cat_results
        if len(set(self.frames_per_worker)) > 1 and (joined == "stack" or (joined == 0 and self.rows)):
            raise SpecError(
                f"{type(collector).__name__}: batches of {self.frames_per_worker} frames cannot be put together with "
                f"cat_results={joined!r}: take -1."
            )

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


class Continuous(Schedule):
    """Delivers the batch of whichever worker has one, and lets that worker continue at once."""

    def __init__(self, collector: Collector, group: WorkerGroup, update: Callable[[], None]) -> None:
        super().__init__(collector, group, update)
        self.frames_per_batch = max(self.frames_per_worker)
        self._init_random_frames = collector.init_random_frames
        self._next_worker = 0

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
            self.group.begin([worker], random=self.begun < self._init_random_frames)
            self.begun += self.frames_per_worker[worker]


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
