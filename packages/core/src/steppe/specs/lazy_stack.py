"""LazyStack: the base class of stacks of unequal specs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from tensordict import LazyStackedTensorDict

from . import shapes
from .base import Key, Rows, Spec
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

Part = TypeVar("Part", bound=Spec)

__all__ = ["LazyStack", "stacked_shape"]


def stacked_shape(parts: Sequence[Spec], dim: int) -> torch.Size:
    """Return the shape of parts stacked at ``dim``; -1 for different sizes."""
    columns = zip(*(part.shape for part in parts), strict=True)
    sizes = [sizes[0] if len(set(sizes)) == 1 else -1 for sizes in columns]
    return torch.Size((*sizes[:dim], len(parts), *sizes[dim:]))


class LazyStack(Spec, Generic[Part]):
    """Base of Stacked and StackedComposite: specs along a dimension.

    Shape operations may move the stacked dimension. An operation that would join it with another one, or split it,
    raises NotSupported.
    """

    rows_differ = True

    _parts: list[Part]
    _dim: int

    @abstractmethod
    def _stack(self, parts: Sequence[Part], dim: int) -> Any:
        """Return the stack of other parts; one ordinary spec if they are equal."""

    @abstractmethod
    def _restack(self, parts: Sequence[Any], dim: int) -> Self:
        """Return the stack of other parts, of this class."""

    @abstractmethod
    def _joined(self, rows: list[Any], lead: int = 0) -> Any:
        """Join the data of all parts, which has ``lead`` leading dimensions."""

    @property
    def specs(self) -> tuple[Part, ...]:
        """The stacked specs."""
        return tuple(self._parts)

    @property
    def dim(self) -> int:
        """The stacked dimension, counted from the front."""
        return self._dim

    @property
    def stack_dim(self) -> int:
        """Same as :attr:`dim`."""
        return self._dim

    @property
    def device(self) -> torch.device | None:
        """Device of the data, or None."""
        return self._parts[0].device

    def __len__(self) -> int:
        """Return the first size of the shape."""
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw data ``[*shape, *spec.shape]``; see :meth:`Spec.rand`."""
        lead = shapes.size(shape)
        return self._joined([part.rand(lead, generator=generator) for part in self._parts], len(lead))

    def _filled(self, lead: torch.Size, value: int) -> object:
        return self._joined([part._filled(lead, value) for part in self._parts], len(lead))

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return the choices of each part, ``[n, *shape]``: row ``i`` holds the i-th choice of every part.

        Raises:
            NotSupported: the parts have different numbers of choices.
        """
        columns = [part.enumerate(use_mask) for part in self._parts]
        if len({len(column) for column in columns}) > 1:
            raise self._unsupported("enumerate", "its parts have different numbers of choices; enumerate spec.specs")
        return self._joined(columns, 1)

    @abstractmethod
    def _separate(self, val: Any, key: Key, lead: int | None = None) -> list[Any]:
        """Split data into the data of each part.

        Args:
            val: data, with any leading dimensions; or a list with the data of each part.
            key: name of the data in errors.
            lead: number of leading dimensions; None for those in front of the shape.
        """

    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> Any:
        """Encode a value for each part, in a list or stacked; see :meth:`Spec.encode`."""
        lead = self._lead_of(val) if lead is None else lead
        values = self._separate(val, key, len(lead))
        return self._joined(self._each(values, key, "encode", ignore_device=ignore_device, lead=lead), len(lead))

    def _each(self, rows: list[Any], key: Key, method: str, **options: object) -> list[Any]:
        """Call a method of each part with its data; return the results."""
        pairs = zip(self._parts, rows, strict=True)
        return [getattr(part, method)(row, key=key, **options) for part, row in pairs]

    def _lead_of(self, val: object) -> tuple[int, ...]:
        """Return the leading dimensions of data; lists and nested tensors have none."""
        return () if getattr(val, "is_nested", False) else shapes.lead_of(val, self.ndim)

    def project(self, val: Any, *, key: Key = None) -> Any:
        """Replace invalid data by the nearest valid data; see :meth:`Spec.project`.

        A stack of TensorDicts along the same dimension is edited in place and returned. Otherwise the result is new,
        or ``val`` itself if it is valid.
        """
        if self.is_in(val):
            return val
        rows = self._each(self._separate(val, key), key, "project")
        if isinstance(val, LazyStackedTensorDict) and all(
            new is old for new, old in zip(rows, val.tensordicts, strict=False)
        ):
            return val
        return self._joined(rows, len(self._lead_of(val)))

    def clear_device_(self) -> Self:
        """Make the device of every part None, in place; return the stack."""
        for part in self._parts:
            part.clear_device_()
        return self

    def _repeated(self, part: Part) -> Part:
        """Return a part as a spec of this shape, repeated along the stacked dimension."""
        return part.unsqueeze(self._dim).expand((*part.shape[: self._dim], len(self._parts), *part.shape[self._dim :]))

    def _apply(self, change: Callable[[Any], Any], doing: str) -> Any:
        """Apply an operation to every part, repeated, and stack one row of each result. One part gives no stack."""
        self._shape_after(doing, change)
        if len(self._parts) == 1:
            return self._repeated(self._parts[0])._apply(change, doing)
        at = shapes.dim_after(self.shape, self._dim, change)
        if at is None:
            raise self._unsupported(doing, f"the parts along dimension {self._dim} differ")
        changed = [self._repeated(part)._apply(change, doing) for part in self._parts]
        return self._restack([part[(*[slice(None)] * at, i)] for i, part in enumerate(changed)], at)

    def _index(self, index: object) -> Any:
        ready = shapes.expand_index(index, self.ndim)
        self._shape_after(f"index with {index!r}", lambda t: shapes.indexed(t, ready))
        numbers = shapes.numbers_along(self.shape, self._dim, ready)
        if numbers.numel() == 0:
            raise self._unsupported("__getitem__", "an empty selection along the stacked dimension has no spec")
        others = (*ready[: self._dim], *ready[self._dim + 1 :])
        whole = all(isinstance(part, slice) and part == slice(None) for part in others)
        if whole and len(ready) == self.ndim > numbers.ndim:
            return self._parts[int(numbers)]
        chosen = {i: self._repeated(self._parts[i])[ready] for i in set(numbers.flatten().tolist())}
        return self._assembled(numbers, chosen)

    def _assembled(self, numbers: torch.Tensor, chosen: dict[int, Any]) -> Any:
        """Stack the chosen rows of the parts; ``numbers`` holds the part of each row."""
        for dim in range(numbers.ndim):
            if bool((numbers != numbers.narrow(dim, 0, 1)).any()):
                at = [slice(None)] * dim
                rows = [
                    self._assembled(row, {i: chosen[i][(*at, j)] for i in set(row.flatten().tolist())})
                    for j, row in enumerate(numbers.unbind(dim))
                ]
                return self._stack(rows, dim)
        return chosen[int(numbers.flatten()[0])]

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec. The stacked dimension cannot be dynamic."""
        at = shapes.normal_dim(dim, self.ndim, what=f"a {type(self).__name__} of shape {tuple(self.shape)}")
        if at == self._dim:
            raise self._unsupported("make_neg_dim", "the number of stacked specs is fixed")
        within = at - (at > self._dim)
        for part in self._parts:
            part.clone().make_neg_dim(within)  # raises before any part is changed
        for part in self._parts:
            part.make_neg_dim(within)
        return self

    def clone(self) -> Self:
        """Return an independent, unlocked copy."""
        return self._restack([part.clone() for part in self._parts], self._dim)

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec with every part on another device, or of another dtype; itself if nothing changes."""
        parts = [part.to(dest) for part in self._parts]
        if all(new is old for new, old in zip(parts, self._parts, strict=True)):
            return self
        return self._restack(parts, self._dim)

    def __eq__(self, other: object) -> bool:
        """Whether both stack equal specs along the same dimension. A stack of equal parts equals the joined spec."""
        if isinstance(other, LazyStack):
            return type(self) is type(other) and self._dim == other._dim and self._parts == other._parts
        if not isinstance(other, Spec):
            return NotImplemented
        whole = self._stack(self._parts, self._dim)
        return not isinstance(whole, LazyStack) and bool(whole == other)

    def cardinality(self) -> int | float:
        """Return the cardinality of the parts, if it is the same for all.

        Raises:
            NotSupported: parts have different cardinalities.
        """
        counts = {part.cardinality() for part in self._parts}
        if len(counts) > 1:
            raise self._unsupported("cardinality", "the parts have different ones; ask each of spec.specs")
        return counts.pop()
