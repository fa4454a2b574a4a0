"""What is true of each row of a batch, in memory that its workers may share."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Flags"]


class Flags:
    """What is true of each of ``n_rows`` rows.

    Args:
        n_rows: how many rows.
        memory: ``nbytes(n_rows)`` bytes; by default memory of this process.

    Attributes:
        active: rows that a partial command is for.
        was_reset: rows that the last step-and-reset began anew.
        informed: rows that were given an ``env_info``, which is in their storage.
        loose: rows with a loose entry whose value the caller does not know.
    """

    N = 4

    def __init__(self, n_rows: int, memory: Any = None) -> None:
        block = np.zeros(self.nbytes(n_rows), np.bool_) if memory is None else np.frombuffer(memory, np.bool_)
        self.active, self.was_reset, self.informed, self.loose = block.reshape(self.N, n_rows)

    @classmethod
    def nbytes(cls, n_rows: int) -> int:
        """How much memory they take."""
        return cls.N * n_rows
