"""Helpers of several transforms: checks of arguments, and removal of empty groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite
from steppe.transforms import names_of

__all__ = ["checked_dim", "drop_empty_groups", "some_keys"]


def checked_dim(owner: str, name: str, dim: Any, allow_positive: bool) -> int:
    """Return a dimension after checking that it is negative.

    With ``allow_positive`` it may be any integer.
    """
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise SpecError(f"{owner}: {name} must be a whole number, found {dim!r}.")
    if dim >= 0 and not allow_positive:
        raise SpecError(
            f"{owner}: {name}={dim} is not negative, but batches add dimensions in front. Count from the end "
            f"({name}=-1 is the last one), or pass allow_positive_dim=True to count from the first one after the batch."
        )
    return dim


def some_keys(owner: str, *keys: Any) -> None:
    """Raise an error if no key was passed."""
    if not any(keys):
        raise SpecError(f"{owner}: expected keys, found none. Pass in_keys=[...], or in_keys_inv=[...] for actions.")


def drop_empty_groups(data: TensorDictBase | Composite, keys: Iterable[str | tuple[str, ...]]) -> None:
    """Remove empty groups above these keys, in place.

    Args:
        data: a TensorDict or a Composite.
        keys: keys of removed entries.
    """
    above = {names_of(key)[:depth] for key in keys for depth in range(1, len(names_of(key)))}
    for group in sorted(above, key=len, reverse=True):
        level = data.get(group, None)
        if level is not None and not list(level.keys()):
            del data[group]
