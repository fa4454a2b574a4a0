"""The collectors of TorchRL by name: each is the engine with some arguments set."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tensordict import TensorDictBase

from steppe.collectors.engine import Collector
from steppe.collectors.multi import MultiCollector, named
from steppe.envs import stack_frames
from steppe.errors import SpecError

__all__ = ["MultiSyncDataCollector", "MultiaSyncDataCollector", "SyncDataCollector", "aSyncDataCollector"]


class SyncDataCollector(Collector):
    """Collects in the caller's process, between two iterations of its loop: a :class:`Collector` by its older name."""


class MultiSyncDataCollector(MultiCollector):
    """Delivers a batch when all workers have theirs, which then wait: all data is made with the newest weights.

    ``frames_per_batch`` is that of all workers together, rounded up to whole rows of each with a warning; or a list,
    one for each worker. With B workers of T steps each:

    | | ``"stack"`` | 0 | -1 |
    |---|---|---|---|
    | one environment each | ``[B, T]`` | ``[B * T]`` | ``[B * T]`` |
    | P environments each | ``[B, P, T]`` | ``[B * P, T]`` | ``[P, B * T]`` |

    Args:
        cat_results: ``"stack"``, the default, 0 or -1: how batches of workers are put together.
        *args, **kwargs: see :class:`MultiCollector`.
    """

    _own_arguments = ("cat_results",)

    def __init__(self, *args: Any, cat_results: str | int | None = None, **kwargs: Any) -> None:
        if cat_results not in (None, "stack", 0, -1):
            raise SpecError(f"{type(self).__name__}: cat_results is 'stack', 0 or -1, found {cat_results!r}.")
        self.cat_results = "stack" if cat_results is None else cat_results
        super().__init__(*args, **kwargs)

    def _share(self, frames: int) -> int:
        return -(-frames // self.num_workers)

    def _frames_of_batch(self) -> int:
        own = set(self.frames_per_worker)
        if len(own) > 1 and (self.cat_results == "stack" or (self.cat_results == 0 and self.env_batch_size)):
            raise SpecError(
                f"{type(self).__name__}: batches of {self.frames_per_worker} frames cannot be put together with "
                f"cat_results={self.cat_results!r}: take -1."
            )
        return sum(self.frames_per_worker)

    def _collect(self) -> tuple[TensorDictBase, int]:
        if self.update_at_each_batch and self._source is not None:
            self.update_policy_weights_()
        worker_group = self.worker_group
        everyone = set(range(self.num_workers))
        worker_group.begin(everyone, random=self._frames < self.init_random_frames)
        needed = math.ceil(self.preemptive_threshold * self.num_workers)
        if needed < self.num_workers:
            worker_group.wait(count=max(needed, 1))
            worker_group.interrupt()
        worker_group.wait(everyone)
        self._batch_lost = True  # until the loop has the batch
        rows = self.env_batch_size.numel()
        whole = worker_group.take_all() if self.cat_results != -1 and self.preemptive_threshold == 1.0 else None
        if whole is not None:
            # One copy, of all workers at once; what it is called afterwards costs nothing.
            batch = whole if self.return_same_td else whole.clone()
            if self.cat_results == 0:
                batch = batch.flatten(0, 1)
            return named(batch), self.frames_per_batch
        batches, steps = worker_group.take(sorted(everyone))
        frames = sum(steps) * rows
        if self.cat_results == "stack":
            return named(stack_frames(batches, 0)), frames
        along_time = self.cat_results == -1 or not self.env_batch_size
        if along_time:
            batches = [batch[..., :count] for batch, count in zip(batches, steps, strict=True)]
        return self._joined(batches, -1 if along_time else 0), frames


class MultiaSyncDataCollector(MultiCollector):
    """Delivers the batch of whichever worker has one, ``[T]`` or ``[P, T]``, and lets it go on at once.

    ``frames_per_batch`` is that of one worker. Data may have been made with weights that are a batch old:
    ``("collector", "policy_version")`` says which.

    Args:
        *args, **kwargs: see :class:`MultiCollector`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._turn = self._begun = 0
        super().__init__(*args, **kwargs)

    def _frames_of_batch(self) -> int:
        return max(self.frames_per_worker)

    def _collect(self) -> tuple[TensorDictBase, int]:
        worker_group = self.worker_group
        self._begin(range(self.num_workers))
        have = worker_group.wait()
        # Who waited longest comes first, so that a fast worker does not keep the others from being heard.
        worker = min(have, key=lambda each: (each - self._turn) % self.num_workers)
        self._turn = worker + 1
        self._batch_lost = True  # until the loop has the batch
        (batch,), (count,) = worker_group.take([worker])
        batch = named(batch.clone())
        if self.update_at_each_batch and self._source is not None:
            self.update_policy_weights_()
        self._begin([worker])
        return batch, count * self.env_batch_size.numel()

    def _begin(self, workers: Iterable[int]) -> None:
        """Have workers begin a batch, those that have not; the first ones of random actions."""
        for worker in set(workers) - self.worker_group.at_work:
            self.worker_group.begin([worker], random=self._begun < self.init_random_frames)
            self._begun += self.frames_per_worker[worker]

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool = True) -> None:
        super().load_state_dict(state_dict, strict=strict)
        self._begun = self._frames


class aSyncDataCollector(MultiaSyncDataCollector):
    """One worker that collects while the caller learns.

    Args:
        create_env_fn: what makes its environment.
        policy: see :class:`MultiCollector`.
        **kwargs: see there.
    """

    def __init__(self, create_env_fn: Any, policy: Any = None, **kwargs: Any) -> None:
        makers = create_env_fn if isinstance(create_env_fn, (list, tuple)) else [create_env_fn]
        if len(makers) != 1:
            raise SpecError(f"{type(self).__name__} has one worker, and was given {len(makers)} environments.")
        super().__init__(list(makers), policy, **kwargs)
