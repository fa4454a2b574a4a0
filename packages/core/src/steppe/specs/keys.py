"""Keys of nested specs: a name, or a tuple of names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar

from tensordict import NestedKey

from steppe.errors import SpecError

if TYPE_CHECKING:
    from .composite_entries import CompositeEntries

__all__ = ["IsLeaf", "SpecKeys", "as_path", "below_next", "is_key", "is_memory", "is_private"]

_T = TypeVar("_T")

IsLeaf: TypeAlias = "Callable[[type], bool] | None"


class SpecKeys(Set[Any]):
    """The keys of a Composite: a view that follows edits; nested keys are tuples.

    Args:
        spec: the Composite.
        include_nested: include the keys in nested specs.
        leaves_only: leave out the keys of nested specs themselves.
        is_leaf: called with a class of Composite; returns whether to treat it as a leaf.
        static_only: only the keys of Composites with ``step_mdp_static=True``.
    """

    def __init__(
        self,
        spec: CompositeEntries,
        include_nested: bool,
        leaves_only: bool,
        is_leaf: IsLeaf,
        static_only: bool = False,
    ) -> None:
        self._spec = spec
        self._how = (include_nested, leaves_only, is_leaf, static_only)

    @classmethod
    def _from_iterable(cls, it: Iterable[_T]) -> set[_T]:
        return set(it)

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._spec._walk(*self._how))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        if not is_key(key):
            return False
        path = as_path(key)
        return any(path == as_path(mine) for mine in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


def is_key(key: object) -> TypeGuard[NestedKey]:
    """Whether ``key`` is a name or a nested tuple of names."""
    return isinstance(key, str) or (isinstance(key, tuple) and bool(key) and all(is_key(part) for part in key))


def as_path(key: object) -> tuple[str, ...]:
    """Return a key as a tuple of names."""
    if isinstance(key, str):
        return (key,)
    if not is_key(key):
        raise SpecError(f"Expected a name or a tuple of names, found {key!r}.")
    return tuple(name for part in key for name in as_path(part))


def is_private(key: NestedKey) -> bool:
    """Whether a name in a key begins with "_": the entry is not part of the data, unless a spec declares it."""
    return any(name[0] == "_" for name in as_path(key))


def is_memory(key: NestedKey) -> bool:
    """Whether a name in a key begins with "__": the entry is the memory of a transform."""
    return any(name[:2] == "__" for name in as_path(key))


def below_next(key: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the key of an entry under ``next``."""
    return ("next", key) if isinstance(key, str) else ("next", *key)
