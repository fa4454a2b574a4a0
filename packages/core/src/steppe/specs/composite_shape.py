"""CompositeShape: the batch dimensions of a Composite, their names and shape operations."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict

from steppe.errors import SpecError

from . import shapes
from .base import Spec
from .composite_entries import CompositeEntries
from .locking import Lockable
from .shapes import Change

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["CompositeShape"]


class CompositeShape(CompositeEntries, Lockable):
    """The part of a Composite that handles its batch dimensions. Results are unlocked.

    Names of dimensions follow shape operations as those of TensorDicts do.
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
        rows: Any = TensorDict({}, batch_size=shapes.static(self.shape), names=self._names)  # type: ignore[arg-type]
        try:
            refined = rows.refine_names(*names).names
        except (RuntimeError, ValueError, IndexError):
            raise SpecError(f"Composite: dimensions of the names {self._names} cannot get {list(names)}.") from None
        self._name(list(refined))
        return self

    def _checked_names(self, names: Iterable[str | None] | None) -> list[str | None]:
        checked: list[str | None] = [None] * self.ndim if names is None else list(names)
        if len(checked) != self.ndim:
            raise SpecError(f"Composite: expected {self.ndim} name(s) for shape {tuple(self.shape)}, found {checked}.")
        return checked

    # Operations --------------------------------------------------------------------------------------------------

    def _apply(self, change: Change, doing: str) -> Any:
        def on_rows(data: Any) -> Any:
            # A TensorDict applies the operation to the batch dimensions, and leaves the others of the entry alone.
            rows: Any = change(TensorDict({"data": data}, batch_size=data.shape[: self.ndim]))
            return rows["data"]

        out = self._remake(self._shape_after(doing, change), lambda child: child._apply(on_rows, doing), None)
        return self._renamed(out, change)

    def _index(self, index: object) -> Any:
        ready = shapes.expand_index(index, self.ndim)

        def change(data: torch.Tensor) -> torch.Tensor:
            return shapes.indexed(data, ready)

        out = self._remake(self._shape_after(f"index with {index!r}", change), lambda child: child[ready], None)
        return self._renamed(out, change)

    def _renamed(self, out: CompositeShape, change: Change) -> CompositeShape:
        """Name the batch dimensions of ``out`` as those of a TensorDict after the operation."""
        if any(self._names):
            names: Any = self._names
            rows: Any = change(TensorDict({}, batch_size=shapes.probe_shape(self.shape), names=names))
            out._name(list(rows.names))
        return out

    def make_neg_dim(self, dim: int) -> Self:
        """Make the batch size at ``dim`` dynamic, here and in every entry, in place; return the spec."""
        at = shapes.normal_dim(dim, self.ndim, what=f"the batch size {tuple(self.shape)}")
        self._check_unlocked("make a size dynamic")
        children = list(self._entries.values())
        for child in children:
            child.clone().make_neg_dim(at)  # raises before any entry is changed
        for child in children:
            child.make_neg_dim(at)
        self._shape = torch.Size((*self.shape[:at], -1, *self.shape[at + 1 :]))
        return self
