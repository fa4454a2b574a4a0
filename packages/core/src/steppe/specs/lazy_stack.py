"""What stacks of specs that differ share: their data part by part, and operations on shapes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from steppe.errors import SpecError

from . import shapes
from .base import Key, Spec
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LazyStack", "stacked_shape"]


def stacked_shape(parts: Sequence[Spec], dim: int) -> torch.Size:
    """The shape of parts stacked at ``dim``: -1 where their sizes differ."""
    columns = zip(*(part.shape for part in parts), strict=True)
    sizes = [sizes[0] if len(set(sizes)) == 1 else -1 for sizes in columns]
    return torch.Size((*sizes[:dim], len(parts), *sizes[dim:]))


class LazyStack(Spec):
    """Base of Stacked and StackedComposite: specs along a dimension.

    An operation that keeps the stacked dimension apart acts on every part. One that would join or split it has no
    meaning for parts that differ, and raises NotSupported.
    """

    _parts: list[Any]
    _dim: int

    @abstractmethod
    def _stack(self, parts: Sequence[Any], dim: int) -> Any:
        """The stack of other parts; one ordinary spec where they are equal."""

    @abstractmethod
    def _restack(self, parts: Sequence[Any], dim: int) -> Self:
        """The stack of other parts, of this class."""

    @abstractmethod
    def _joined(self, rows: list[Any], lead: int = 0) -> Any:
        """One datum of the stack, with ``lead`` leading dimensions, from one for each part."""

    @property
    def specs(self) -> tuple[Any, ...]:
        """The specs that are stacked."""
        return tuple(self._parts)

    @property
    def dim(self) -> int:
        """The dimension along which they are stacked, counted from the front."""
        return self._dim

    @property
    def stack_dim(self) -> int:
        """Same as :attr:`dim`."""
        return self._dim

    @property
    def device(self) -> torch.device | None:
        """Device of the data, or None."""
        device: torch.device | None = self._parts[0].device
        return device

    def __len__(self) -> int:
        """Return the first size of the shape; the number of stacked specs where that is the first dimension."""
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw data ``[*shape, *spec.shape]``; see :meth:`Spec.rand`."""
        lead = shapes.size(shape)
        return self._joined([part.rand(lead, generator=generator) for part in self._parts], len(lead))

    def zero(self, shape: ShapeLike = ()) -> Any:
        """Return zeros ``[*shape, *spec.shape]``."""
        lead = shapes.size(shape)
        return self._joined([part.zero(lead) for part in self._parts], len(lead))

    def one(self, shape: ShapeLike = ()) -> Any:
        """Return ones ``[*shape, *spec.shape]``."""
        lead = shapes.size(shape)
        return self._joined([part.one(lead) for part in self._parts], len(lead))

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return the choices of each part, ``[n, *shape]``: row ``i`` holds the i-th choice of every part.

        Raises:
            NotSupported: the parts have different numbers of choices.
        """
        columns = [part.enumerate(use_mask) for part in self._parts]
        if len({len(column) for column in columns}) > 1:
            raise self._unsupported("enumerate", "its parts have different numbers of choices; enumerate spec.specs")
        return self._joined(columns, 1)

    def _each(self, rows: list[Any], key: Key, method: str, **options: Any) -> list[Any]:
        """What a method of each part returns for its datum."""
        pairs = zip(self._parts, rows, strict=True)
        return [getattr(part, method)(row, key=key, **options) for part, row in pairs]

    def clear_device_(self) -> Self:
        """Make the device of every part None, in place; return the stack."""
        for part in self._parts:
            part.clear_device_()
        return self

    def _at(self, dim: int) -> int:
        return shapes.normal_dim(dim, self.ndim, what=f"a {type(self).__name__} of shape {tuple(self.shape)}")

    def _within(self, dim: int) -> int:
        """A dimension of the stack as a dimension of the parts."""
        return dim - (dim > self._dim)

    def expand(self, *sizes: Any) -> Self:
        """Return the spec of data repeated to a larger shape; -1 keeps a size. The stacked dimension keeps its size."""
        target = list(shapes.flat_sizes(sizes))
        dim = self._dim + len(target) - self.ndim
        n = len(self._parts)
        if dim < self._dim or (target[dim] not in (-1, n) and n != 1):
            raise SpecError(
                f"{type(self).__name__} of shape {tuple(self.shape)}: cannot expand to {tuple(target)}: the size of "
                f"the stacked dimension is {n}."
            )
        width = target.pop(dim)
        parts = self._parts * (width if n == 1 and width > 0 else 1)
        return self._restack([part.expand(*target) for part in parts], dim)

    def squeeze(self, dim: int | None = None) -> Any:
        """Return the spec without a dimension of size 1, or without any of them."""
        if dim is None:
            out: Any = self
            for at in reversed(range(self.ndim)):
                if self.shape[at] == 1:
                    out = out.squeeze(at)
            return out
        at = self._at(dim)
        if self.shape[at] != 1:
            return self
        if at == self._dim:
            return self._parts[0]
        parts = [part.squeeze(self._within(at)) for part in self._parts]
        return self._restack(parts, self._dim - (at < self._dim))

    def unsqueeze(self, dim: int) -> Self:
        """Return the spec with a new dimension of size 1 at ``dim``."""
        at = shapes.normal_dim(dim, self.ndim + 1, what=f"shape {tuple(self.shape)} with one more")
        if at <= self._dim:
            return self._restack([part.unsqueeze(at) for part in self._parts], self._dim + 1)
        return self._restack([part.unsqueeze(at - 1) for part in self._parts], self._dim)

    def reshape(self, *sizes: Any) -> Any:
        """Return the spec in another shape, where that leaves the stacked dimension and those before it alone."""
        target, head = list(shapes.flat_sizes(sizes)), list(self.shape[: self._dim + 1])
        if target == list(self.shape):
            return self.clone()
        if target[: len(head)] == head and -1 not in head:
            inner = [*head[:-1], *target[len(head) :]]
            return self._restack([part.reshape(*inner) for part in self._parts], self._dim)
        raise self._unsupported("reshape", f"the parts along dimension {self._dim} differ")

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """Return the spec with dimensions joined, of which the stacked one is none."""
        first, last = self._at(start_dim), self._at(end_dim)
        if first == last:
            return self.clone()
        if first <= self._dim <= last:
            raise self._unsupported("flatten", f"the parts along dimension {self._dim} differ")
        parts = [part.flatten(self._within(first), self._within(last)) for part in self._parts]
        return self._restack(parts, self._dim - (last - first if last < self._dim else 0))

    def unflatten(self, dim: int, sizes: ShapeLike) -> Any:
        """Return the spec with a dimension split, which is not the stacked one."""
        at, inner = self._at(dim), shapes.size(sizes)
        if at == self._dim:
            raise self._unsupported("unflatten", f"the parts along dimension {self._dim} differ")
        parts = [part.unflatten(self._within(at), inner) for part in self._parts]
        return self._restack(parts, self._dim + (len(inner) - 1 if at < self._dim else 0))

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """Return the specs along a dimension: the parts, along the stacked one."""
        at = self._at(dim)
        if at == self._dim:
            return tuple(self._parts)
        if self.shape[at] < 0:
            raise SpecError(f"{type(self).__name__} of shape {tuple(self.shape)}: cannot unbind dimension {dim}.")
        columns = zip(*(part.unbind(self._within(at)) for part in self._parts), strict=True)
        return tuple(self._stack(column, self._dim - (at < self._dim)) for column in columns)

    def _index(self, index: Any) -> Any:
        ready = shapes.expand_index(index, self.ndim)
        split = _position(ready, self._dim)
        before, own, after = ready[:split], ready[split], ready[split + 1 :]
        inner = (*before, *after)

        def part(i: int) -> Any:
            return self._parts[i][inner] if any(not _is_full(entry) for entry in inner) else self._parts[i]

        if isinstance(own, int):
            if not -len(self._parts) <= own < len(self._parts):
                raise IndexError(f"Index {own} is out of range for {len(self._parts)} stacked specs.")
            return part(own)
        if isinstance(own, slice):
            chosen = list(range(len(self._parts)))[own]
        else:
            chosen = _numbers(own, len(self._parts))
            if any(isinstance(entry, torch.Tensor) for entry in inner):
                raise self._unsupported("__getitem__", "tensors index the stacked dimension and another one at once")
        if not chosen:
            raise self._unsupported("__getitem__", "an empty selection along the stacked dimension has no spec")
        return self._stack([part(i) for i in chosen], _width(before))

    def __getitem__(self, index: Any) -> Any:
        """Index as data of this shape is indexed; along the stacked dimension it selects parts."""
        return self._index(index)

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec. Not for the stacked dimension."""
        at = self._at(dim)
        if at == self._dim:
            raise self._unsupported("make_neg_dim", "the number of stacked specs is fixed")
        for part in self._parts:
            part.clone().make_neg_dim(self._within(at))  # whatever is wrong is found before anything is changed
        for part in self._parts:
            part.make_neg_dim(self._within(at))
        return self

    def clone(self) -> Self:
        """Return an independent, unlocked copy."""
        return self._restack([part.clone() for part in self._parts], self._dim)

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec with every part on another device, or of another dtype; itself where nothing changes."""
        parts = [part.to(dest) for part in self._parts]
        if all(new is old for new, old in zip(parts, self._parts, strict=True)):
            return self
        return self._restack(parts, self._dim)

    def __eq__(self, other: object) -> bool:
        """Whether both are stacks of equal specs along the same dimension."""
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, LazyStack)
        return self._dim == other._dim and self._parts == other._parts

    def cardinality(self) -> int | float:
        """Return the cardinality of the parts, where it is the same for all.

        Raises:
            NotSupported: parts have different ones.
        """
        counts = {part.cardinality() for part in self._parts}
        if len(counts) > 1:
            raise self._unsupported("cardinality", f"the parts have different ones: {sorted(counts)}")
        return counts.pop()  # type: ignore[no-any-return]


def _is_full(entry: Any) -> bool:
    return isinstance(entry, slice) and entry == slice(None)


def _consumes(entry: Any) -> int:
    if entry is None or isinstance(entry, bool):
        return 0
    if isinstance(entry, torch.Tensor) and entry.dtype is torch.bool:
        return entry.ndim
    return 1


def _position(index: tuple[Any, ...], dim: int) -> int:
    """Which entry of an index is about a dimension."""
    seen = 0
    for at, entry in enumerate(index):
        if seen <= dim < seen + _consumes(entry):
            if _consumes(entry) > 1:
                raise SpecError("A mask over several dimensions cannot cover the stacked one.")
            return at
        seen += _consumes(entry)
    raise IndexError(f"No index for dimension {dim}.")


def _numbers(entry: torch.Tensor, n: int) -> list[int]:
    if entry.ndim != 1:
        raise SpecError(f"Expected an index of one dimension for stacked specs, found shape {tuple(entry.shape)}.")
    if entry.dtype is torch.bool:
        if len(entry) != n:
            raise IndexError(f"A mask of {len(entry)} entries does not fit {n} stacked specs.")
        entry = entry.nonzero().squeeze(-1)
    numbers: list[int] = entry.tolist()
    if any(not -n <= i < n for i in numbers):
        raise IndexError(f"Index {numbers} is out of range for {n} stacked specs.")
    return numbers


def _width(before: Iterable[Any]) -> int:
    """How many dimensions of the result stand before the stacked one."""
    return sum(
        entry.ndim if isinstance(entry, torch.Tensor) and entry.dtype is not torch.bool else not isinstance(entry, int)
        for entry in before
    )
