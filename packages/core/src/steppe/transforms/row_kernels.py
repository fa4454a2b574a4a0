"""RowKernels: faster forms of ``_apply_transform`` for rows of arrays, and a kernel that clamps values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from steppe.transforms.base import Transform
from steppe.transforms.compiled.entry_kernel import EntryKernel, without_gradients
from steppe.transforms.compiled.transform_hooks import Array, EnvSpecs, Hooks, RowHooks
from steppe.transforms.transform_keys import Key

__all__ = ["RowKernels", "clip_kernel"]


class RowKernels(Transform):
    """Base class of :class:`ObservationTransform` and :class:`EntryTransform`: a kernel for rows of arrays.

    On rows of arrays it is called instead of ``_apply_transform``, unless a subclass overrides ``_apply_transform``
    below it.

    Attributes:
        by_blocks: whether large entries are transformed in blocks of a few rows, which fit into a core's cache. False
            for functions with a high cost per call: they receive many rows at once.
    """

    by_blocks: bool = True

    def row_kernel(self, source: Array, target: Array) -> Callable[[], object] | None:
        """Return a function that transforms rows of arrays in numpy, which takes a fraction of the time of torch.

        Override this too if results are large, such as images: a function that writes to ``target`` saves a copy.

        Args:
            source: the entry of all rows, ``[n, *shape]``.
            target: memory for the results, of the shape and dtype of their spec. It is ``source`` itself if the entry
                keeps its key, shape and dtype.

        Returns:
            A function that reads ``source`` and writes ``target`` at each call; None to call ``_apply_transform``.
            Results must be those of ``_apply_transform``, to the bit.
        """
        return None

    @property
    def _has_kernel(self) -> bool:
        """Whether a class overrides ``row_kernel``, and no subclass of it ``_apply_transform``."""
        owner = self._overrides.owner_of("row_kernel")
        return owner is not RowKernels and not self._writes("_apply_transform", owner)

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks_in(specs)
        if hooks.pairs and hooks.rows is None and self.keeps_nothing and not self.writes_done and self._has_kernel:
            read, written = zip(*hooks.pairs, strict=True)
            row_by_row = self.key_of_rows() is None
            kernel = EntryKernel(hooks.pairs, self._prepared, row_by_row=row_by_row, by_blocks=self.by_blocks)
            hooks.rows = RowHooks(kernel, reads=read, writes=written)
        return hooks

    def _prepared(self, key: Key, source: Array, target: Array) -> Callable[[], object]:
        kernel = self.row_kernel(source, target)
        if kernel is not None:
            return kernel
        # Without a shared key the method does not accept a leading dimension of rows.
        row: tuple[Any, ...] = (...,) if self.key_of_rows() is not None else (0, ...)
        value, out = torch.from_numpy(source[row]), torch.from_numpy(target[row])
        return without_gradients(lambda: out.copy_(self._apply_transform(value)))


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
