"""Functions of keys: a key is a name, or a tuple of names for a nested entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from steppe.specs import as_path

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

#: A name, or a tuple of names for a nested entry.
Key: TypeAlias = "str | tuple[str, ...]"
#: An argument for keys: a single key, several, or None for the default.
Keys: TypeAlias = "Key | Iterable[object] | None"

#: The names of done entries.
DONE_NAMES = ("done", "terminated", "truncated")

__all__ = [
    "DONE_NAMES",
    "Key",
    "Keys",
    "as_key",
    "as_keys",
    "keys_property",
    "names_of",
    "replace_last",
]


def names_of(key: Key) -> tuple[str, ...]:
    """Return the names of a key, one for each level."""
    return (key,) if isinstance(key, str) else tuple(key)


def as_key(key: object) -> Key:
    """Return a key in its shortest form: a string at the first level, a tuple of strings below it.

    Raises:
        SpecError: the key is neither.
    """
    names = as_path(key)
    return names[0] if len(names) == 1 else names


def as_keys(keys: Keys) -> list[Key]:
    """Return a list of keys, of a single key (a string or a tuple) or of several."""
    if keys is None:
        return []
    if isinstance(keys, (str, tuple)):
        return [as_key(keys)]
    return [as_key(key) for key in keys]


def replace_last(key: Key, name: str) -> Key:
    """Return the key of another entry at the same level."""
    names = names_of(key)
    return as_key((*names[:-1], name))


def keys_property(name: str, default: str | None = None, found: Callable[[Any], list[Key]] | None = None) -> Any:
    """Return a property that holds a list of keys of a transform, each in its shortest form.

    Args:
        name: name of the property.
        default: name of the property to read while no keys are assigned; None for an empty list.
        found: function of the transform that returns the keys while none are assigned; comes before ``default``.
    """

    private = f"_{name}"

    def get(self: Transform) -> list[Key]:
        keys: list[Key] | None = getattr(self, private)
        if keys is not None:
            return keys
        if found is not None:
            return found(self)
        return [] if default is None else list(getattr(self, default))

    def set_(self: Transform, keys: Keys) -> None:
        setattr(self, private, None if keys is None else as_keys(keys))
        self._changed()

    get.__doc__ = f"The ``{name}`` as a list. Assigned keys take effect at the next step."
    return property(get, set_)
