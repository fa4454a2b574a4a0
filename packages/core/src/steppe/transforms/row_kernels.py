"""RowKernels: what transforms of single entries may write beside ``_apply_transform``, to be faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from steppe.transforms.base import Transform
from steppe.transforms.compiled.entry_kernel import EntryKernel, by_torch, without_gradients
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks

__all__ = ["RowKernels"]


class RowKernels(Transform):
    """What :class:`ObservationTransform` and :class:`EntryTransform` have in common: two methods for rows of arrays.

    They are called in place of ``_apply_transform`` where data goes through rows, unless a subclass has written another
    ``_apply_transform`` since.

    Attributes:
        by_blocks: whether large entries go through it a few rows after the others, while they are in a core's cache.
            False for what costs much by itself, however small the entry is: it is given many rows at once.
    """

    by_blocks: bool = True

    def apply_into(self, value: torch.Tensor, out: torch.Tensor) -> None:
        """Write ``_apply_transform(value)`` to ``out``: to be overridden where results are large.

        It is called in place of ``_apply_transform`` where the result goes to rows of arrays: one copy less, and no
        memory in between.

        Args:
            value: an entry, not to be changed.
            out: where the result goes, of the shape and dtype that the specs say; other memory than that of ``value``.
        """
        out.copy_(self._apply_transform(value))

    def row_kernel(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], object] | None:
        """Prepare ``_apply_transform`` for rows of arrays: whatever can be worked out before the first step.

        In numpy it takes a fraction of the time. What computes with torch works on tensors that need no gradient.

        Args:
            source: an entry of rows ``[n, *shape]``.
            target: where the results go, of the shape and dtype that the specs say; the same memory as ``source`` where
                the entry keeps its key, shape and dtype.

        Returns:
            A function that reads ``source`` and writes ``target``, at each call; None where :meth:`apply_into` is to do
            it. Results are those of ``_apply_transform``, to the bit.
        """
        return None

    @property
    def applies_into(self) -> bool:
        """Whether the class has written one of the two, and no subclass another ``_apply_transform``."""
        owners = [self._overrides.owner_of(name) for name in ("apply_into", "row_kernel")]
        return any(owner is not RowKernels and not self._writes("_apply_transform", owner) for owner in owners)

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks_in(specs)
        if hooks.pairs and hooks.rows is None and self.keeps_nothing and not self.writes_done and self.applies_into:
            read, written = zip(*hooks.pairs, strict=True)
            row_by_row = self.key_of_rows() is None
            kernel = EntryKernel(hooks.pairs, self._prepared, row_by_row=row_by_row, by_blocks=self.by_blocks)
            # Row by row there is no call to be shared by many.
            hooks.rows = RowHooks(kernel, reads=read, writes=written, by_blocks=self.by_blocks or row_by_row)
        return hooks

    def _prepared(self, source: Any, target: Any) -> Callable[[], object]:
        kernel = self.row_kernel(source, target)
        if kernel is not None:
            return kernel
        # One that takes no rows in front is given one row, without its dimension.
        row: Any = (...,) if self.key_of_rows() is not None else (0, ...)
        read, written = source[row], target[row]
        if np.may_share_memory(read, written):
            return by_torch(self._apply_transform, read, written)
        return without_gradients(partial(self.apply_into, torch.from_numpy(read), torch.from_numpy(written)))
