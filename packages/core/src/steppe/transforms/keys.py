"""Keys: a name, or a tuple of names for an entry below other entries."""

from __future__ import annotations

from typing import Any

from steppe.errors import SpecError

__all__ = ["as_key", "as_keys", "names_of", "replace_last"]


def names_of(key: Any) -> tuple[str, ...]:
    """The names of a key, one for each level."""
    return (key,) if isinstance(key, str) else tuple(key)


def as_key(key: Any) -> Any:
    """Return a key in its shortest form: a string at the first level, a tuple of strings below it.

    Raises:
        SpecError: it is neither.
    """
    if isinstance(key, str):
        return key
    names: list[str] = []
    if isinstance(key, tuple):
        for part in key:
            part = as_key(part)
            names += [part] if isinstance(part, str) else part
    if not names:
        raise SpecError(f"A key is a name or a tuple of names, found {key!r}.")
    return names[0] if len(names) == 1 else tuple(names)


def as_keys(keys: Any) -> list[Any]:
    """Return a list of keys; a string or a tuple is one key, a list holds several."""
    if keys is None:
        return []
    if isinstance(keys, (str, tuple)):
        return [as_key(keys)]
    return [as_key(key) for key in keys]


def replace_last(key: Any, name: str) -> Any:
    """Return the key of a neighbour: the same levels, and ``name`` at the end."""
    names = names_of(key)
    return as_key((*names[:-1], name))
