"""Words in shared memory that orders and answers are written to, without a message."""

from __future__ import annotations

import mmap

from steppe.systems import anonymous_file

__all__ = ["ANSWERED", "ARGUMENT", "AT_WORK", "FAILED", "ORDER", "ORDERED", "PER_WORKER", "RESULT", "Words"]

#: How many words each worker has: two cache lines, of which the caller writes the first and the worker the second.
PER_WORKER = 16
# The caller's: number of the last order (written last), what it asks for, and one argument of it.
ORDERED, ORDER, ARGUMENT = 0, 1, 2
# The worker's: the last order that it has done (written last), whether it raised, its result, and what it is at,
# counted from 1; 0 between orders.
ANSWERED, FAILED, RESULT, AT_WORK = 8, 9, 10, 11


class Words:
    """The words of ``n_workers`` workers, and memory behind them whose meaning is its users'.

    Args:
        n_workers: how many workers there are.
        n_extra: bytes behind the words.
        memory: where they are; a mapping of at least ``nbytes``.

    Attributes:
        words: int64 words, ``PER_WORKER`` for each worker.
        extra: the bytes behind them.
    """

    def __init__(self, n_workers: int, n_extra: int, memory: mmap.mmap | bytearray) -> None:
        block = memoryview(memory)
        end = n_workers * PER_WORKER * 8
        self.words: memoryview[int] = block[:end].cast("q")
        self.extra = block[end : end + n_extra]

    @staticmethod
    def nbytes(n_workers: int, n_extra: int) -> int:
        """How much memory they take."""
        return n_workers * PER_WORKER * 8 + n_extra

    @classmethod
    def shared(cls, n_workers: int, n_extra: int, fd: int) -> Words:
        """The words in the memory behind ``fd``, which lives as long as its views."""
        return cls(n_workers, n_extra, mmap.mmap(fd, cls.nbytes(n_workers, n_extra)))

    @classmethod
    def anonymous(cls, n_workers: int, n_extra: int) -> tuple[Words, int]:
        """Words in new shared memory without a name, and the descriptor to hand to workers; close it then."""
        fd = anonymous_file(cls.nbytes(n_workers, n_extra))
        return cls.shared(n_workers, n_extra, fd), fd
