"""BatchMemory: shared memory in which workers write their batches, and of which the caller keeps batches."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable

from tensordict import TensorDict

from steppe.specs import Composite
from steppe.storage import LARGE, Layout, Storage, large_clone

__all__ = ["BatchMemory"]

#: Blocks for large batches: one that the caller works with, one that it gets next, and one that workers write. Pages
#: that were never written take no memory.
_BLOCKS = 3

#: How often this process was forked.
_forks = [0]


def _note_fork() -> None:
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_fork)


class BatchMemory:
    """Blocks of shared memory, each with a row for each worker.

    The caller gets a large batch without a copy, and workers write to its block again once the last view of the batch
    is gone. A small batch is copied, which takes less time than new views of the memory. So is a large one if the
    caller keeps all other blocks.

    Args:
        spec: the spec of a batch of one worker.
        n: the number of workers.
        one_block: a batch of all workers overwrites the one before, which the caller therefore does not keep.

    Attributes:
        storage: the memory ``[blocks, n]``.
    """

    def __init__(self, spec: Composite, n: int, *, one_block: bool) -> None:
        is_large = Layout.of(spec, (n,)).nbytes >= LARGE
        self._one_block = one_block
        self.storage = Storage(spec, (_BLOCKS if is_large and not one_block else 1, n), kind="shared")
        #: The block in which each worker writes its batch.
        self._blocks = [0] * n
        #: Block and worker of each batch that the caller keeps.
        self._kept: set[tuple[int, int]] = set()

    def _free(self, workers: Iterable[int], *, but: int | None = None) -> int | None:
        """Return the first block but one where the caller keeps no batch of these workers, or None."""
        numbers = list(workers)
        for block in range(self.storage.rows[0]):
            if block != but and self._kept.isdisjoint((block, worker) for worker in numbers):
                return block
        return None

    def next_block(self, worker: int) -> int:
        """Return the block for the next batch of a worker."""
        block = self._free([worker])
        assert block is not None  # a batch that is kept leaves another block free
        self._blocks[worker] = block
        return block

    def batch(self, worker: int) -> TensorDict:
        """Return the batch of a worker as views that its later batches overwrite."""
        batch: TensorDict = self.storage.td[self._blocks[worker], worker]
        return batch

    def kept_batch(self, worker: int | None) -> TensorDict | None:
        """Return a batch that the caller may keep.

        Args:
            worker: whose batch; None for the batches of all workers, ``[n, ...]``.

        Returns:
            The batch; None if the batches of all workers are in several blocks.
        """
        workers = range(len(self._blocks)) if worker is None else (worker,)
        block, *others = {self._blocks[each] for each in workers}
        if others:
            return None
        at = (block,) if worker is None else (block, worker)
        if self._free(workers, but=block) is None:
            batch: TensorDict = self.storage.td[at]
            return batch if self._one_block and worker is None else large_clone(batch)
        batch, memory = self.storage.new_views(at)
        kept = {(block, number) for number in workers}
        weakref.finalize(memory, _dropped, self._kept, kept, _forks[0]).atexit = False
        self._kept |= kept
        return batch


def _dropped(all_kept: set[tuple[int, int]], dropped: set[tuple[int, int]], forks: int) -> None:
    """Let workers write to the memory of a batch again, unless a process that was forked meanwhile may read it."""
    if forks == _forks[0]:
        all_kept -= dropped
