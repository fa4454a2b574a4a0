"""Stacked: a stack of unequal leaf specs; and torch.stack for specs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict

from steppe.errors import SpecError

from . import shapes
from .action_checks import ArrayCheck
from .base import Key, Rows, Spec, named
from .composite import Composite
from .lazy_stack import LazyStack, stacked_shape

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Stacked", "check_parts", "stack"]


def stack(specs: Sequence[Any], dim: int = 0, *, mixed: bool = False) -> Any:
    """Stack specs along a new dimension, as ``torch.stack(specs, dim)`` does.

    Args:
        specs: only Composites, or only leaf specs.
        dim: position of the new dimension; for Composites it is a batch dimension.
        mixed: leaves may have different dtypes, as entries of lazily stacked rows may.

    Returns:
        A spec of the same class with one more dimension if all are equal, otherwise a Stacked or a StackedComposite.

    Raises:
        SpecError: the list is empty, or the specs differ in more than their sizes and domains.
    """
    from .stacked_composite import StackedComposite

    specs = list(specs)
    check_parts(specs, "torch.stack", mixed=mixed)
    first = specs[0]
    at = shapes.normal_dim(dim, first.ndim + 1, what=f"a stack of specs of shape {tuple(first.shape)}")
    if all(spec == first for spec in specs[1:]):
        return first.unsqueeze(at).expand(*first.shape[:at], len(specs), *first.shape[at:])
    if isinstance(first, Composite):
        return StackedComposite(*specs, dim=at)
    return Stacked(*specs, dim=at, mixed=mixed)


def check_parts(parts: Sequence[object], doing: str, *, mixed: bool = False) -> None:
    """Raise a SpecError if specs cannot be stacked."""
    if not parts:
        raise SpecError(f"{doing}: expected at least one spec, found none.")
    first = parts[0]
    for part in parts:
        if not isinstance(part, Spec) or isinstance(part, Composite) != isinstance(first, Composite):
            raise SpecError(f"{doing}: expected Composites only or leaf specs only, found {first!r} and {part!r}.")
        for what in ("ndim", "device") if mixed else ("ndim", "dtype", "device"):
            expected, actual = getattr(first, what), getattr(part, what)
            if expected != actual:
                raise SpecError(f"{doing}: expected specs of one {what}, found {expected} and {actual}.")


class Stacked(LazyStack[Spec]):
    """Leaf specs with different sizes or domains, along a new dimension.

    If all sizes are equal, data is one tensor. Otherwise it is a nested tensor with one component per spec, and the
    different sizes are -1 in the shape. A list with the data of each spec is valid too.

    Args:
        *specs: leaf specs of one dtype, device and number of dimensions.
        dim: position of the new dimension.
        mixed: allow different dtypes. Such data is not one tensor: draw it from the Composite that holds the entry.

    Raises:
        SpecError: they cannot be stacked.
    """

    def __init__(self, *specs: Spec, dim: int = 0, mixed: bool = False) -> None:
        check_parts(specs, "Stacked", mixed=mixed)
        if isinstance(specs[0], Composite):
            raise SpecError("Stacked: expected leaf specs, found Composites. Use StackedComposite or torch.stack.")
        self._dim = shapes.normal_dim(dim, specs[0].ndim + 1, what="a stack")
        self._parts = list(specs)

    def _stack(self, parts: Sequence[Spec], dim: int) -> Any:
        return stack(parts, dim, mixed=self.dtype is None)

    def _restack(self, parts: Sequence[Any], dim: int) -> Self:
        return type(self)(*parts, dim=dim, mixed=self.dtype is None)

    @property
    def shape(self) -> torch.Size:
        """Shape of the data; -1 for different sizes."""
        return stacked_shape(self._parts, self._dim)

    @property
    def dtype(self) -> torch.dtype | None:
        """Dtype of the data; None for different dtypes and for data that is not a tensor."""
        dtypes = {part.dtype for part in self._parts}
        return dtypes.pop() if len(dtypes) == 1 else None

    @property
    def domain(self) -> str | None:
        """``"continuous"``, ``"discrete"``, or None."""
        return self._parts[0].domain

    @property
    def space(self) -> list[object]:
        """The sets of values of the specs."""
        return [part.space for part in self._parts]

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the bounds of all parts; see :meth:`Spec.bounds`."""
        if -1 in self.shape:
            raise self._unsupported("bounds", "the parts have different sizes")
        low, high = zip(*(part.bounds() for part in self._parts), strict=True)
        return torch.stack(low, self._dim), torch.stack(high, self._dim)

    def _joined(self, values: list[Any], lead: int = 0) -> Any:
        if not isinstance(values[0], torch.Tensor):
            return LazyStackedTensorDict.lazy_stack(values, lead + self._dim)
        if len({value.dtype for value in values}) > 1:
            raise self._unsupported("rand", f"rows of dtypes {[value.dtype for value in values]} cannot be one tensor")
        if all(value.shape == values[0].shape for value in values):
            return torch.stack(values, lead + self._dim)
        if lead + self._dim == 0:
            return _nested_tensor(values)
        raise self._unsupported(
            "rand",
            f"rows of sizes {[tuple(value.shape) for value in values]} cannot be one tensor; draw from each spec",
        )

    def _separate(self, val: Any, key: Key, lead: int | None = None) -> list[Any]:
        n = len(self._parts)
        if isinstance(val, (list, tuple)) and len(val) == n and not self._dim:
            return list(val)
        if isinstance(val, torch.Tensor) and val.is_nested:
            if val.size(0) == n and self._dim == 0:
                return list(val.unbind())
        else:
            if isinstance(val, (list, tuple, np.ndarray)):
                try:
                    val = torch.from_numpy(np.asarray(val))
                except (TypeError, ValueError, RuntimeError):  # rows of different sizes, or no numbers
                    val = None
            if hasattr(val, "unbind"):
                at = (len(self._lead_of(val)) if lead is None else lead) + self._dim
                if 0 <= at < val.ndim and val.shape[at] == n:
                    return list(val.unbind(at))
        ragged = getattr(val, "is_nested", False) or not hasattr(val, "shape")
        description = type(val).__name__ if ragged else tuple(val.shape)
        raise SpecError(
            f"{named(key, self)}: expected data of shape {tuple(self.shape)}, one for each of {n} stacked specs, "
            f"found {description}."
        )

    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        ragged = isinstance(val, (list, tuple)) or getattr(val, "is_nested", False)
        if not ragged and hasattr(val, "shape") and not shapes.fits_rows(val.shape, self.shape, rows):
            yield f"{named(key, self)}: expected shape {(*(rows or ()), *self.shape)}, found {tuple(val.shape)}."
            return
        try:
            values = self._separate(val, key)
        except SpecError as error:
            yield str(error)
            return
        for i, (part, value) in enumerate(zip(self._parts, values, strict=True)):
            for fault in part._faults(value, key, rows, exact):
                yield f"{fault} (Stacked spec {i}.)"

    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return an array, or a list with the value of each part if sizes differ or values are no arrays."""
        values = self._each(self._separate(val, key), key, "to_numpy", safe=safe)
        if all(isinstance(value, np.ndarray) and value.shape == values[0].shape for value in values):
            return np.stack(values, len(self._lead_of(val)) + self._dim)
        return values

    def array_check(self) -> ArrayCheck | None:
        """Check the rows of each part with its own check."""
        checks = [part.array_check() for part in self._parts]
        if not any(checks):
            return None
        after = self.ndim - self._dim  # counted from the end, because rows may come in front

        def check(array: np.ndarray) -> bool:
            rows = np.moveaxis(array, array.ndim - after, 0)
            return all(part is None or part(np.ascontiguousarray(row)) for part, row in zip(checks, rows, strict=True))

        return check

    def __repr__(self) -> str:
        inner = ", ".join(map(repr, self._parts))
        return f"Stacked({inner}, dim={self._dim})"


def _nested_tensor(rows: list[torch.Tensor]) -> torch.Tensor:
    """Return rows of different sizes as one nested tensor."""
    with warnings.catch_warnings():
        # torch warns once that nested tensors are a prototype. The specs document where they are used.
        warnings.filterwarnings("ignore", message=".*nested tensors is in prototype")
        out: torch.Tensor = torch.nested.nested_tensor(rows, device=rows[0].device)
    return out


def _torch_stack(tensors: Sequence[Spec], dim: int = 0, *, out: object = None) -> Any:
    if out is not None:
        raise SpecError("torch.stack of specs returns a new spec: it takes no out=.")
    return stack(tensors, dim)


Spec._torch_functions.update(
    {
        torch.stack: _torch_stack,
        torch.squeeze: lambda input, dim=None: input.squeeze(dim),
        torch.unsqueeze: lambda input, dim: input.unsqueeze(dim),
        torch.index_select: lambda input, dim, index: input[(*[slice(None)] * (dim % input.ndim), index)],
    }
)
