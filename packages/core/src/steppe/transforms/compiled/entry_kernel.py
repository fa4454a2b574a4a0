"""EntryKernel: runs a transform of single entries on blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import torch

from steppe.transforms.compiled.transform_hooks import Array, ResetOnRows, RowArrays, StepOnRows
from steppe.transforms.transform_keys import Key

__all__ = ["EntryKernel", "Prepare", "without_gradients"]

#: Called with the key to write, an entry of rows ``[n, *shape]`` and memory for the results; returns a function that
#: computes them.
Prepare = Callable[[Key, Array, Array], Callable[[], object]]

#: Bytes of a block: those of a core's cache. It holds a few images, which share the cost of a call.
_CACHE = 2**21
#: Size of the blocks of expensive calls, in caches: one call for all rows might need too much memory.
_MANY = 8

_P = ParamSpec("_P")
_T = TypeVar("_T")


class EntryKernel:
    """The ``bind`` of the :class:`RowHooks` of a transform of single entries.

    Args:
        pairs: keys to read and to write.
        prepare: function that prepares one pair. It is called once for each block of rows; for each row for entries of
            the root, and if ``row_by_row`` is set.
        row_by_row: transform each row in a call of its own, for transforms that accept no leading dimension of rows.
        by_blocks: whether a call is cheap. Then a block fits into a core's cache; otherwise blocks are larger.
    """

    def __init__(
        self, pairs: list[tuple[Key, Key]], prepare: Prepare, *, row_by_row: bool = False, by_blocks: bool = True
    ) -> None:
        self.pairs, self.prepare, self.row_by_row, self.by_blocks = pairs, prepare, row_by_row, by_blocks

    def __call__(self, root: RowArrays, following: RowArrays) -> tuple[StepOnRows, ResetOnRows | None]:
        stepped = [(b, following.before[a], following[b]) for a, b in self.pairs if b in following]
        at_root = [(b, root.before[a], root[b]) for a, b in self.pairs if a in root.before and b in root]
        of_all = self._of_each_row(stepped) if self.row_by_row else self._of_blocks(stepped)
        after = [run for part in of_all for run in part]
        first = [] if self.row_by_row else [run for block in self._of_blocks(at_root) for run in block]
        of_rows = self._of_each_row(at_root)

        def step() -> bool:
            for run in after:
                run()
            return False

        def reset(at: Sequence[int]) -> None:
            runs = first if first and len(at) == len(of_rows) else [run for row in at for run in of_rows[row]]
            for run in runs:
                run()

        return step, reset if at_root else None

    def _of_each_row(self, columns: list[tuple[Key, Array, Array]]) -> list[list[Callable[[], object]]]:
        n = len(columns[0][1]) if columns else 0
        return [[self.prepare(key, a[i : i + 1], b[i : i + 1]) for key, a, b in columns] for i in range(n)]

    def _of_blocks(self, columns: list[tuple[Key, Array, Array]]) -> list[list[Callable[[], object]]]:
        return [[self.prepare(key, a[block], b[block]) for block in self._blocks(a, b)] for key, a, b in columns]

    def _blocks(self, source: Array, target: Array) -> list[slice]:
        """Return slices of the rows, of about equal length, each of which fits into a core's cache."""
        n, used = len(source), source.nbytes + target.nbytes
        longest = max(1, round((1 if self.by_blocks else _MANY) * _CACHE * n / max(1, used)))
        count = -(-n // longest)
        return [slice(i * n // count, (i + 1) * n // count) for i in range(count)]


def without_gradients(run: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return the function, run as under ``torch.no_grad()``."""
    is_enabled, set_enabled = torch.is_grad_enabled, torch.set_grad_enabled

    def without(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # torch.no_grad() takes twice the time, and gradients are mostly disabled already.
        if not is_enabled():
            return run(*args, **kwargs)
        set_enabled(False)
        try:
            return run(*args, **kwargs)
        finally:
            set_enabled(True)

    return without
