"""Keys of nested specs: a name, or a tuple of names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeGuard

from tensordict import NestedKey

from steppe.errors import SpecError

__all__ = ["IsLeaf", "as_path", "below_next", "is_key", "is_memory", "is_private"]

IsLeaf: TypeAlias = "Callable[[type], bool] | None"


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
