"""Lockstep and Continuous: when workers begin a batch, and which of their batches are delivered together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors.workers_backend import WorkersBackend
from steppe.envs import stack_frames
from steppe.errors import ArgumentError
from steppe.storage import large_clone

__all__ = ["Continuous", "Lockstep"]


class Lockstep(WorkersBackend):
    """Deliver a batch when all workers have theirs, and let them wait: all data is made with the newest weights."""

    def _read_reports(self, name: str, settings: Mapping[str, Any]) -> None:
        super()._read_reports(name, settings)
        self.frames_per_batch = sum(self.frames_per_worker)
        # A collector without a schedule of its own has the environments of all workers as its rows.
        by_rows: str | int = 0 if self.env_batch_size else "stack"
        joined = self._cat_results = by_rows if self._collector.schedule is None else self._collector.cat_results
        if len(set(self.frames_per_worker)) > 1 and (joined == "stack" or (joined == 0 and self.env_batch_size)):
            raise ArgumentError(
                f"{name}: batches of {self.frames_per_worker} frames cannot be put together with "
                f"cat_results={joined!r}: take -1."
            )

    def _joined_batch(self, random_frames: int) -> tuple[TensorDictBase | None, int]:
        self._update_if_asked()
        n = self.num_workers
        self.begin(range(n), random=random_frames > 0)
        needed = math.ceil(self._collector.preemptive_threshold * n)
        if needed < n:
            self.wait(count=max(needed, 1))
            self.interrupt()
        self.wait(set(range(n)))
        delivered = self.count_delivered(range(n))
        if delivered is not None:
            return None, delivered
        self.batch_lost = True
        rows, steps = self.env_batch_size.numel(), self.steps(range(n))
        frames = sum(steps) * rows
        along_time = self._cat_results == -1 or (self._cat_results == 0 and not self.env_batch_size)
        is_whole = [count * rows for count in steps] == self.frames_per_worker
        # Batches of several rows cannot be joined along time without a copy.
        if (is_whole or not along_time) and not (along_time and self.env_batch_size):
            batch = self.take_kept(None)
            if batch is not None:
                return batch if self._cat_results == "stack" else batch.flatten(0, 1), frames
        batches = self.take(range(n))
        if self._cat_results == "stack":
            return stack_frames(batches, 0), frames
        if along_time:
            batches = [batch[..., :count] for batch, count in zip(batches, steps, strict=True)]
        return _joined(batches, -1 if along_time else 0), frames


class Continuous(WorkersBackend):
    """Deliver the batch of whichever worker has one, and let that worker continue at once."""

    frames_of_all = False
    _next_worker = 0

    def _read_reports(self, name: str, settings: Mapping[str, Any]) -> None:
        super()._read_reports(name, settings)
        self.frames_per_batch = max(self.frames_per_worker)

    def _joined_batch(self, random_frames: int) -> tuple[TensorDictBase | None, int]:
        n = self.num_workers
        self._begin(range(n), random_frames)
        ready = self.wait()
        # The worker that has waited longest comes first, so that a fast worker does not keep the others waiting.
        worker = min(ready, key=lambda each: (each - self._next_worker) % n)
        self._next_worker = worker + 1
        delivered = self.count_delivered([worker])
        if delivered is not None:
            self._update_if_asked()
            self._begin([worker], random_frames - delivered)
            return None, delivered
        self.batch_lost = True
        (steps,), rows = self.steps([worker]), self.env_batch_size.numel()
        batch = self.take_kept(worker)
        assert batch is not None
        self._update_if_asked()
        self._begin([worker], random_frames - steps * rows)
        return batch, steps * rows

    def _begin(self, workers: Iterable[int], random_frames: int) -> None:
        """Let the idle ones of some workers begin a batch, after the frames that others have begun."""
        for worker in set(workers) - self.at_work:
            begun = sum(self.frames_per_worker[other] for other in self.at_work)
            self.begin([worker], random=begun < random_frames)


def _joined(batches: list[TensorDictBase], dim: int) -> TensorDictBase:
    """Concatenate the batches of workers, lazily if the shapes of their entries differ."""
    if len(batches) == 1:
        return large_clone(batches[0])
    try:
        return cat_tds(batches, dim)
    except RuntimeError:
        at = dim % batches[0].batch_dims
        return stack_frames([frame for batch in batches for frame in batch.unbind(at)], at)
