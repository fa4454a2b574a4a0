"""CompositeShape: the batch dimensions of a Composite, their names and shape operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from operator import methodcaller
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch

from steppe.errors import SpecError

from . import shapes
from .base import Spec
from .composite_entries import CompositeEntries
from .locking import Lockable
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CompositeShape"]


class CompositeShape(CompositeEntries, Lockable):
    """The part of a Composite that handles its batch dimensions. Results are unlocked.

    Names of dimensions stay with them; ``reshape``, ``flatten`` and ``unflatten`` drop them.
    """

    _names: list[str | None]

    @abstractmethod
    def _remake(self, shape: torch.Size, change: Callable[[Spec], Spec], names: list[str | None] | None) -> Self:
        """Return a Composite of another shape with every entry changed."""

    # Names of the batch dimensions -------------------------------------------------------------------------------

    @property
    def names(self) -> list[str | None]:
        """Names of the batch dimensions; None for a dimension without a name."""
        return list(self._names)

    @names.setter
    def names(self, value: list[str | None] | None) -> None:
        self._check_unlocked("change its names")
        self._name(self._checked_names(value))

    def _name(self, names: list[str | None]) -> None:
        """Name the batch dimensions of this spec and of nested Composites."""
        self._names = names
        for child in self._children.values():
            if isinstance(child, CompositeShape):
                child._name([*names, *child._names[len(names) :]])

    def refine_names(self, *names: str | EllipsisType | None) -> Self:
        """Name the batch dimensions that have no name, in place; ``...`` stands for the others.

        Raises:
            SpecError: a dimension has another name, or there are too many names.
        """
        self._check_unlocked("change its names")
        requested: list[Any] = list(names)
        if Ellipsis in requested:
            at = requested.index(Ellipsis)
            requested[at : at + 1] = self._names[at : self.ndim - (len(requested) - at - 1)]
        refined = self._checked_names(requested)
        for old, new in zip(self._names, refined, strict=True):
            if old is not None and old != new:
                raise SpecError(f"Composite: the dimension {old!r} cannot be renamed to {new!r} by refine_names.")
        self._name(refined)
        return self

    def _checked_names(self, names: Iterable[str | None] | None) -> list[str | None]:
        checked: list[str | None] = [None] * self.ndim if names is None else list(names)
        if len(checked) != self.ndim:
            raise SpecError(f"Composite: expected {self.ndim} name(s) for shape {tuple(self.shape)}, found {checked}.")
        return checked

    def _lead_names(self, lead: int) -> list[str | None]:
        new: list[str | None] = [None] * lead
        return new + self._names

    # Operations --------------------------------------------------------------------------------------------------

    def _batch_dim(self, dim: int) -> int:
        return shapes.normal_dim(dim, self.ndim, what=f"the batch size {tuple(self.shape)}")

    def expand(self, *sizes: ShapeLike) -> Self:
        """Return the spec of data expanded to a larger batch size; -1 keeps a size."""
        target = shapes.flat_sizes(sizes)
        shape = self._shape_after(f"expand to {tuple(target)}", lambda t: t.expand(target))
        names = self._lead_names(len(shape) - self.ndim)
        return self._remake(shape, lambda child: child.expand(*target, *child.shape[self.ndim :]), names)

    def squeeze(self, dim: int | None = None) -> Self:
        """Return the spec without a batch dimension of size 1, or without any of them."""
        if dim is not None and self.ndim:
            at = self._batch_dim(dim)
            shape = self._shape_after("squeeze", lambda t: t.squeeze(at))
            names = self.names
            if len(shape) < self.ndim:
                del names[at]
            return self._remake(shape, lambda child: child.squeeze(at), names)
        if dim is not None and dim not in (-1, 0):
            self._batch_dim(dim)
        out = self
        for at in reversed(range(self.ndim)):
            if self.shape[at] == 1:
                out = out.squeeze(at)
        return self.clone() if out is self else out

    def unsqueeze(self, dim: int) -> Self:
        """Return the spec with a new batch dimension of size 1 at ``dim``."""
        at = shapes.normal_dim(dim, self.ndim + 1, what=f"the batch size {tuple(self.shape)} with one more")
        shape = self._shape_after("unsqueeze", lambda t: t.unsqueeze(at))
        names = self.names
        names.insert(at, None)
        return self._remake(shape, lambda child: child.unsqueeze(at), names)

    def reshape(self, *sizes: ShapeLike) -> Self:
        """Return the spec with reshaped batch dimensions; one size may be -1."""
        target = shapes.flat_sizes(sizes)
        shape = self._shape_after(f"reshape to {tuple(target)}", lambda t: t.reshape(target))
        return self._remake(shape, lambda child: child.reshape(*shape, *child.shape[self.ndim :]), None)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Return the spec with the batch dimensions from ``start_dim`` to ``end_dim`` joined."""
        if self.ndim == 0:
            return self.unsqueeze(0)
        first, last = self._batch_dim(start_dim), self._batch_dim(end_dim)
        shape = self._shape_after("flatten", lambda t: t.flatten(first, last))
        return self._remake(shape, lambda child: child.flatten(first, last), None)

    def unflatten(self, dim: int, sizes: ShapeLike) -> Self:
        """Return the spec with the batch dimension ``dim`` split into ``sizes``."""
        at, parts = self._batch_dim(dim), shapes.size(sizes)
        shape = self._shape_after(f"unflatten into {tuple(parts)}", methodcaller("unflatten", at, parts))
        return self._remake(shape, lambda child: child.unflatten(at, parts), None)

    def _index(self, index: object) -> Self:
        ready = shapes.expand_index(index, self.ndim)
        shape = self._shape_after(f"index with {index!r}", lambda t: shapes.indexed(t, ready))
        return self._remake(shape, lambda child: child[ready], shapes.indexed_names(self.names, ready))

    def make_neg_dim(self, dim: int) -> Self:
        """Make the batch size at ``dim`` dynamic, here and in every entry, in place; return the spec."""
        at = self._batch_dim(dim)
        self._check_unlocked("make a size dynamic")
        children = list(self._entries.values())
        for child in children:
            child.clone().make_neg_dim(at)  # raises before any entry is changed
        for child in children:
            child.make_neg_dim(at)
        self._shape = torch.Size((*self.shape[:at], -1, *self.shape[at + 1 :]))
        return self
