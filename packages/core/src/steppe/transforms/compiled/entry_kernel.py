"""EntryKernel: a transform of single entries on blocks of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from steppe.transforms.compiled.row_blocks import blocks_of

__all__ = ["EntryKernel", "Prepare", "by_torch", "without_gradients"]

#: Given an entry of rows ``[n, *shape]`` and where its results go, returns a function that reads and writes them.
Prepare = Callable[["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"], Callable[[], object]]

#: How many times as many rows are given to what costs much by itself. All of them might ask for much memory.
_MANY = 8


class EntryKernel:
    """What a transform of single entries does to blocks of rows: the ``bind`` of its :class:`RowHooks`.

    Args:
        pairs: keys to read and to write.
        prepare: prepares one pair. It is called once for each row where ``row_by_row``, and for what a reset writes;
            otherwise for as many rows as fit into a core's cache, or several times as many.
        row_by_row: each row by itself: right for what takes no rows in front.
        by_blocks: whether a call is cheap.
    """

    def __init__(
        self, pairs: list[tuple[Any, Any]], prepare: Prepare, *, row_by_row: bool = False, by_blocks: bool = True
    ) -> None:
        self.pairs, self.prepare, self.row_by_row, self.by_blocks = pairs, prepare, row_by_row, by_blocks

    def __call__(self, root: Any, following: Any) -> Any:
        stepped = [(following.before[a], following[b]) for a, b in self.pairs]
        at_root = [(root.before[a], root[b]) for a, b in self.pairs if a in root.before and b in root]
        after = (
            [run for rows in self._of_each_row(stepped) for run in rows]
            if self.row_by_row
            else [self.prepare(a[block], b[block]) for a, b in stepped for block in self._blocks(a, b)]
        )
        of_rows = self._of_each_row(at_root)

        def step() -> bool:
            for run in after:
                run()
            return False

        def reset(at: Any) -> None:
            for row in at:
                for run in of_rows[row]:
                    run()

        return step, reset if of_rows else None

    def _of_each_row(self, columns: list[tuple[Any, Any]]) -> list[list[Callable[[], object]]]:
        n = len(columns[0][0]) if columns else 0
        return [[self.prepare(a[i : i + 1], b[i : i + 1]) for a, b in columns] for i in range(n)]

    def _blocks(self, source: Any, target: Any) -> list[slice]:
        n = len(source)
        return blocks_of(n, (source.nbytes + target.nbytes) // n, times=1 if self.by_blocks else _MANY)


def by_torch(apply: Callable[[Any], Any], source: Any, target: Any) -> Callable[[], object]:
    """A function that writes ``apply`` of an entry of rows to its place."""
    read, written = torch.from_numpy(source), torch.from_numpy(target)

    def run() -> None:
        written.copy_(apply(read))

    return without_gradients(run)


def without_gradients(run: Callable[[], object]) -> Callable[[], object]:
    """The same function, called as if nobody asked for gradients."""
    asked, set_asked = torch.is_grad_enabled, torch.set_grad_enabled

    def called() -> None:
        # torch.no_grad() takes twice the time, and most callers have said it before.
        if not asked():
            run()
            return
        set_asked(False)
        try:
            run()
        finally:
            set_asked(True)

    return called
