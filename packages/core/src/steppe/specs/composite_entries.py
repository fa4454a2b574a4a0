"""CompositeEntries: the entries of a Composite, its batch dimensions and their names."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import methodcaller
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey

from steppe.errors import SpecError

from . import shapes
from .base import Spec
from .keys import IsLeaf, SpecKeys, as_path, is_key
from .locking import Lockable
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NOTHING", "CompositeEntries"]

NOTHING = object()
"""Default argument that means: raise an error."""


class CompositeEntries(Spec, Lockable):
    """The part of a Composite that looks up its entries and changes its batch dimensions. Results are unlocked.

    Names of dimensions stay with them; ``reshape``, ``flatten`` and ``unflatten`` drop them.
    """

    step_mdp_static: bool
    _names: list[str | None]

    @property
    @abstractmethod
    def _children(self) -> Mapping[str, Spec | None]:
        """The entries."""

    @abstractmethod
    def _remake(self, shape: torch.Size, change: Callable[[Spec], Spec], names: list[str | None] | None) -> Self:
        """Return a Composite of another shape with every entry changed."""

    # Entries -----------------------------------------------------------------------------------------------------

    @property
    def _entries(self) -> dict[str, Spec]:
        """The entries that have a spec; any value is valid for the others."""
        return {name: child for name, child in self._children.items() if child is not None}

    def _walk(
        self,
        include_nested: bool,
        leaves_only: bool,
        is_leaf: IsLeaf,
        static_only: bool = False,
        prefix: tuple[str, ...] = (),
    ) -> Iterator[tuple[Any, Spec | None]]:
        for name, child in self._children.items():
            nested = isinstance(child, CompositeEntries) and not (is_leaf is not None and is_leaf(type(child)))
            if static_only:
                chosen = isinstance(child, CompositeEntries) and child.step_mdp_static
            else:
                chosen = not (nested and leaves_only)
            if chosen:
                yield ((*prefix, name) if prefix else name), child
            if nested and include_nested:
                assert isinstance(child, CompositeEntries)
                yield from child._walk(include_nested, leaves_only, is_leaf, static_only, (*prefix, name))

    def keys(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: IsLeaf = None,
        step_mdp_static_only: bool = False,
    ) -> SpecKeys:
        """Return a view of the keys.

        Args:
            include_nested: include the entries of nested Composites; their keys are tuples.
            leaves_only: leave out the keys of Composites.
            is_leaf: called with a class of Composite; returns whether to treat it as a leaf.
            step_mdp_static_only: only the keys of Composites made with ``step_mdp_static=True``.
        """
        return SpecKeys(self, include_nested, leaves_only, is_leaf, step_mdp_static_only)

    def items(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: IsLeaf = None,
        step_mdp_static_only: bool = False,
    ) -> list[tuple[Any, Any]]:
        """Return pairs of key and spec, chosen as :meth:`keys` does."""
        return list(self._walk(include_nested, leaves_only, is_leaf, step_mdp_static_only))

    def values(
        self,
        include_nested: bool = False,
        leaves_only: bool = False,
        *,
        is_leaf: IsLeaf = None,
        step_mdp_static_only: bool = False,
    ) -> list[Any]:
        """Return the specs, chosen as :meth:`keys` does."""
        return [child for _, child in self._walk(include_nested, leaves_only, is_leaf, step_mdp_static_only)]

    def get(self, key: NestedKey, default: object = NOTHING) -> Any:
        """Return the entry at a name or a tuple of names.

        Raises:
            KeyError: the entry is missing, and there is no default; the text suggests similar keys.
        """
        spec: Any = self
        path = as_path(key)
        for name in path:
            if not isinstance(spec, CompositeEntries) or name not in spec._children:
                if default is not NOTHING:
                    return default
                raise KeyError(self._not_found(key))
            spec = spec._children[name]
        return spec

    def _not_found(self, key: NestedKey) -> str:
        known = {str(mine): mine for mine in self.keys(include_nested=True)}
        near = [repr(known[match]) for match in difflib.get_close_matches(str(key), known, n=3)]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"There is no entry {key!r} in this {type(self).__name__}. It has {list(known.values())}.{hint}"

    def __contains__(self, key: object) -> bool:
        return is_key(key) and self.get(key, self) is not self

    def __iter__(self) -> Iterator[str]:
        return iter(self._children)

    def __len__(self) -> int:
        return len(self._children)

    def __bool__(self) -> bool:
        # A spec without entries is true, unlike an empty dict.
        return True

    def is_empty(self, recurse: bool = False) -> bool:
        """Whether there are no entries; with ``recurse``, no entries except empty Composites."""
        if not recurse:
            return not self._children
        return all(
            isinstance(child, CompositeEntries) and child.is_empty(recurse=True) for child in self._children.values()
        )

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
            if isinstance(child, CompositeEntries):
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
