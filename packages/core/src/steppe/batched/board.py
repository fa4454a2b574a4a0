"""The words that commands and acknowledgements are written to, and the flags of each row."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

__all__ = ["Board", "Flags"]

# Two cache lines for each worker: the caller writes the first, the worker the second.
_WORDS = 16
COMMAND, OP, PARTIAL = 0, 1, 2
ACK, FAILED, N_RESET, CURRENT = 8, 9, 10, 11


class Flags:
    """What is true of each row.

    Args:
        block: ``[3, n]`` bool; by default memory of this process.
        n_rows: how many rows, where there is no block.

    Attributes:
        active: rows that a partial command is for.
        was_reset: rows that the last step-and-reset began anew.
        informed: rows that were given an ``env_info``, which stands in their storage.
    """

    N = 3

    def __init__(self, n_rows: int, block: np.ndarray[Any, Any] | None = None) -> None:
        self.active, self.was_reset, self.informed = (
            block if block is not None else np.zeros((self.N, n_rows), np.bool_)
        )


class Board:
    """Shared words of ``n_workers`` workers and flags of ``n_rows`` rows.

    Args:
        n_workers: how many workers there are.
        n_rows: how many environments they have together.
        buffer: memory to see; by default memory of this process.

    Attributes:
        words: int64 words, 16 for each worker. At ``CURRENT`` is the row at work, counted from 1; 0 between commands.
        flags: of each row.
    """

    def __init__(self, n_workers: int, n_rows: int, buffer: Any = None) -> None:
        size = self.nbytes(n_workers, n_rows)
        block = memoryview(buffer if buffer is not None else bytearray(size))
        end = n_workers * _WORDS * 8
        self.words: memoryview[int] = block[:end].cast("q")
        flags = np.frombuffer(block, np.bool_, Flags.N * n_rows, offset=end).reshape(Flags.N, n_rows)
        self.flags = Flags(n_rows, flags)

    @staticmethod
    def nbytes(n_workers: int, n_rows: int) -> int:
        """How many bytes such a board takes."""
        return n_workers * _WORDS * 8 + Flags.N * n_rows

    @classmethod
    def shared(cls, n_workers: int, n_rows: int, fd: int) -> Board:
        """A board in the memory behind ``fd``. It lives as long as its views."""
        return cls(n_workers, n_rows, mmap.mmap(fd, cls.nbytes(n_workers, n_rows)))

    @classmethod
    def anonymous(cls, n_workers: int, n_rows: int) -> tuple[Board, int]:
        """A board in shared memory without a name, and the descriptor to hand to others; close it then."""
        nbytes = cls.nbytes(n_workers, n_rows)
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("steppe-board", os.MFD_CLOEXEC)
        else:
            with tempfile.TemporaryFile(prefix="steppe-") as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, nbytes)
        return cls.shared(n_workers, n_rows, fd), fd

    @staticmethod
    def base(worker: int) -> int:
        """Index of a worker's first word."""
        return worker * _WORDS
