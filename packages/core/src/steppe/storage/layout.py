"""Layout: the offset of each leaf of a spec in a block of bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from steppe.errors import NotSupported
from steppe.specs import Composite, Spec, as_path, torch_to_numpy_dtype_dict

__all__ = ["Field", "Layout", "no_storage_reason", "split_loose"]

# One cache line, so that processes that write neighbouring fields do not share a line.
_ALIGN = 64


@dataclass(frozen=True)
class Field:
    """One leaf: its key, the shape of one row, its dtype and the byte offset in a block."""

    key: str | tuple[str, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int

    @property
    def numpy_dtype(self) -> np.dtype | None:
        """The numpy dtype; None for bfloat16, which numpy lacks."""
        return torch_to_numpy_dtype_dict.get(self.dtype)


@dataclass(frozen=True)
class Layout:
    """All leaves of a spec, laid end to end for a number of rows."""

    fields: tuple[Field, ...]
    nbytes: int

    @classmethod
    def of(cls, spec: Composite, rows: tuple[int, ...]) -> Layout:
        """Lay out the leaves of ``spec`` for ``rows``.

        Raises:
            NotSupported: a leaf has no fixed shape or is not a tensor; the text names it.
        """
        reason = no_storage_reason(spec)
        if reason is not None:
            raise NotSupported(reason)
        fields: list[Field] = []
        offset = 0
        n_rows = math.prod(rows)
        for key, leaf in spec.items(include_nested=True, leaves_only=True):
            if leaf is None:
                continue
            fields.append(Field(key, tuple(leaf.shape), leaf.dtype, offset))
            nbytes = n_rows * math.prod(leaf.shape) * leaf.dtype.itemsize
            offset += -(-nbytes // _ALIGN) * _ALIGN
        return cls(tuple(fields), max(offset, _ALIGN))


def no_storage_reason(spec: Spec) -> str | None:
    """Return why data of this spec cannot be laid out in memory; None if it can.

    Args:
        spec: any spec; all entries of a Composite are checked.

    Returns:
        A sentence that names the key, or None if every leaf is a tensor of fixed shape and every group a TensorDict.
    """
    if isinstance(spec, Composite) and spec.rows_differ:
        return "heterogeneous specs (a StackedComposite) have no fixed layout: each row keeps its own shape."
    if not isinstance(spec, Composite):
        return _no_leaf_reason("", spec)
    for key, child in spec.items():
        if child is None:
            continue
        if isinstance(child, Composite) and child.data_cls is not None:
            return f"the entry {key!r} is a {child.data_cls.__name__}, and storage gives TensorDicts back."
        reason = no_storage_reason(child) if isinstance(child, Composite) else _no_leaf_reason(key, child)
        if reason is not None:
            return reason
    return None


def split_loose(spec: Composite) -> tuple[Composite, dict[Any, Spec]]:
    """Separate the loose entries of a spec: those without a fixed layout, such as text and tensors of varying size.

    Args:
        spec: a spec with nested entries. Stacks of unequal specs and tensorclasses in it are left as they are.

    Returns:
        The spec without its loose entries, and the specs of these by key.
    """
    loose: dict[Any, Spec] = {}
    kept = spec.clone(recurse=False)
    for name, child in spec.items():
        if child is None or child.rows_differ:
            continue
        if isinstance(child, Composite):
            part, below = split_loose(child)
            if below and child.data_cls is None:
                kept[name] = part
                loose.update((as_path((name, key)), leaf) for key, leaf in below.items())
        elif _no_leaf_reason(name, child) is not None:
            kept.pop(name)
            loose[name] = child
    return kept, loose


def _no_leaf_reason(key: str | tuple[str, ...], leaf: Spec) -> str | None:
    if leaf.rows_differ:
        return f"the entry {key!r} stacks unequal specs, so its shape differs from row to row."
    if leaf.dtype is None:
        return f"the entry {key!r} is not a tensor ({type(leaf).__name__}), so it has no place in shared memory."
    if any(size < 0 for size in leaf.shape):
        return f"the entry {key!r} has a dynamic shape {tuple(leaf.shape)}, so its size is not known in advance."
    return None
