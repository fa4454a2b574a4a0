"""Flags of the rows of a batch, in memory that the workers may share."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Flags"]


class Flags:
    """Boolean flags for each of ``n_rows`` rows.

    Args:
        n_rows: the number of rows.
        memory: ``nbytes(n_rows)`` bytes; by default memory of this process.

    Attributes:
        active: rows that a command for some rows addresses.
        was_reset: rows that the last step-and-reset has reset.
        has_info: rows with an ``env_info`` in storage for their next reset.
        begun: rows whose root in storage is newer than their ``next``, because they were reset after the last step.
        loose: rows with a loose entry whose value the caller does not know.
    """

    N = 5

    def __init__(self, n_rows: int, memory: Any = None) -> None:
        block = np.zeros(self.nbytes(n_rows), np.bool_) if memory is None else np.frombuffer(memory, np.bool_)
        self.active, self.was_reset, self.has_info, self.begun, self.loose = block.reshape(self.N, n_rows)

    @classmethod
    def nbytes(cls, n_rows: int) -> int:
        """Return the size of their memory in bytes."""
        return cls.N * n_rows
