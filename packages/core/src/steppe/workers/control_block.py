"""ControlBlock: flags in shared memory through which a caller orders its workers, and they answer, without messages."""

from __future__ import annotations

import mmap

from steppe.systems import anonymous_file

__all__ = ["ANSWERED", "ARGUMENT", "AT_WORK", "FAILED", "ORDER", "ORDERED", "PER_WORKER", "RESULT", "ControlBlock"]

#: Flags of each worker: two cache lines, so that the caller writes the first and the worker the second.
PER_WORKER = 16
# Written by the caller: the number of the last order (written after the others), the order, and its argument.
ORDERED, ORDER, ARGUMENT = 0, 1, 2
# Written by the worker: the number of the last order that it has done (written after the others), whether that order
# raised, its result, and the index of the item it works on, counted from 1, or 0 between orders.
ANSWERED, FAILED, RESULT, AT_WORK = 8, 9, 10, 11


class ControlBlock:
    """The flags of all workers of a pool, followed by memory that the pool's users may use.

    Args:
        n_workers: number of workers.
        n_extra: bytes of memory behind the flags.
        fd: descriptor of the block that another process has made; None makes one, in memory without a name.

    Attributes:
        flags: int64 values, ``PER_WORKER`` for each worker.
        extra: the bytes behind the flags.
        fd: the descriptor: send it to the workers, then close it. The memory lives as long as its views.
    """

    def __init__(self, n_workers: int, n_extra: int, fd: int | None = None) -> None:
        end = n_workers * PER_WORKER * 8
        self.fd = anonymous_file(end + n_extra) if fd is None else fd
        block = memoryview(mmap.mmap(self.fd, end + n_extra))
        self.flags: memoryview[int] = block[:end].cast("q")
        self.extra = block[end : end + n_extra]
