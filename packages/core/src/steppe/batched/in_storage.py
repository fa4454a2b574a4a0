"""StorageSteps: steps of a batch that leave their data in its storage, for who makes something else of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tensordict import TensorDict, TensorDictBase

from steppe.batched.operations import RESET, STEP, STEP_AND_RESET
from steppe.batched.rows import BatchRows
from steppe.storage import entries

__all__ = ["StorageSteps"]


class StorageSteps:
    """Steps and resets of a batch without TensorDicts of what comes out.

    Args:
        rows: of the batch.
        is_all: whether storage holds all there is of a step: environments write rows of arrays.
        run: carries out an operation in some rows, or in all; returns how many were reset.
        check_open: raises where the batch is closed.

    Attributes:
        is_all: as given.
        storage: root and ``("next", ...)`` rows ``[num_workers]`` of the last step.
        carried: keys of what a step reads of the root there, beside the action.
    """

    def __init__(
        self,
        rows: BatchRows,
        is_all: bool,
        run: Callable[[int, list[int] | None], int],
        check_open: Callable[[str], None],
    ) -> None:
        self._rows, self._run, self._check_open = rows, run, check_open
        self.is_all, self.storage = is_all, rows.storage
        self.carried: list[Any] = [key for key, _, _ in rows.carried]

    def step(self, tensordict: TensorDictBase) -> np.ndarray[Any, Any] | None:
        """Act, and begin anew what has ended.

        Args:
            tensordict: root data with the action.

        Returns:
            Which rows were reset, ``[num_workers]`` bool, valid until the next step, or None for none. Storage then has
            their first data at the root; the other rows of its root are not valid.
        """
        self.write(tensordict)
        return self._rows.flags.was_reset if self._run(STEP_AND_RESET, None) else None

    def reset(self, rows: list[int]) -> None:
        """Reset some rows, as ``step`` does those that ended: the root of ``storage`` has their data."""
        self._run(RESET, rows)

    def write(self, tensordict: TensorDictBase) -> None:
        """Write into ``storage`` what ``step`` is given, for :meth:`act`."""
        self._check_open("step")
        if type(tensordict) is not TensorDict or not self._rows.write_plain(entries(tensordict)):
            self._rows.write_inputs(tensordict)

    def act(self, rows: list[int] | None) -> None:
        """Act in some rows, or all, with what is in ``storage``, which then has their ``next``. Nothing is reset."""
        self._run(STEP, rows)
