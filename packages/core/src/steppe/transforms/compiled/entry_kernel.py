"""EntryKernel: transforms of single entries on blocks of rows, and a kernel that clamps values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import torch

from steppe.errors import SpecError
from steppe.transforms.compiled.transform_hooks import Array, ResetOnRows, RowArrays, StepOnRows
from steppe.transforms.transform_keys import Key

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = ["EntryKernel", "Prepare", "bind_entries", "check_result", "clip_kernel", "without_gradients"]

#: Called with the key to write, an entry of rows ``[n, *shape]`` and memory for the results; returns a function that
#: computes them.
Prepare = Callable[[Key, Array, Array], Callable[[], object]]

#: Bytes of a block. It fits into the cache of a core, and holds a few images, which share the cost of a call.
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


def bind_entries(part: Transform, pairs: list[tuple[Key, Key]]) -> EntryKernel:
    """Return the ``bind`` of a transform that only maps entries: its ``row_kernel``, or ``_apply_transform``.

    Args:
        part: the transform.
        pairs: keys to read and to write.
    """
    has_kernel, copies = part.has_kernel, not part.keeps_nothing
    # Without a shared key the method does not accept a leading dimension of rows.
    takes_rows = part.key_of_rows() is not None
    row: tuple[Any, ...] = (...,) if takes_rows else (0, ...)

    def prepare(key: Key, source: Array, target: Array) -> Callable[[], object]:
        kernel = part.row_kernel(source, target) if has_kernel else None
        if kernel is not None:
            return kernel
        value, out = torch.from_numpy(source[row]), torch.from_numpy(target[row])

        def run() -> None:
            result = part._apply_transform(value.clone() if copies else value)
            check_result(part, key, result, out.shape, out.dtype, int(takes_rows))
            out.copy_(result)

        return without_gradients(run)

    return EntryKernel(pairs, prepare, row_by_row=not takes_rows, by_blocks=part.by_blocks)


def check_result(
    part: Transform, key: Key, value: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, batch_dims: int
) -> None:
    """Check the shape and dtype of a result, because a copy into the rows would broadcast and cast it."""
    if value.shape != shape or value.dtype is not dtype:
        raise SpecError(
            f"{type(part).__name__} returned {key!r} of shape {tuple(value.shape[batch_dims:])} and dtype "
            f"{value.dtype}; its specs say {tuple(shape[batch_dims:])} and {dtype}. Change them in "
            "transform_observation_spec or a sibling."
        )


def clip_kernel(source: Array, target: Array, low: float | None, high: float | None) -> Callable[[], None]:
    """Return a function that clamps rows of arrays as ``torch.clamp`` does, to the bit, for use as a ``row_kernel``.

    Args:
        source: the values to read.
        target: memory for the results, of the same shape; may be ``source``.
        low: lower bound, or None.
        high: upper bound, or None.

    Returns:
        A function that reads ``source`` and writes ``target`` at each call.
    """
    least, most = (None if bound is None else np.asarray(bound).astype(target.dtype) for bound in (low, high))

    def clip() -> None:
        values = source
        if least is not None:
            values = np.maximum(values, least, out=target)
        if most is not None:
            np.minimum(values, most, out=target)

    return clip


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
