"""Checks of arguments that several transforms have."""

from __future__ import annotations

from typing import Any

from steppe.errors import SpecError

__all__ = ["checked_dim", "some_keys"]


def checked_dim(owner: str, name: str, dim: Any, allow_positive: bool) -> int:
    """Return a dimension if it is a negative number, or any number if ``allow_positive``."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise SpecError(f"{owner}: {name} is a whole number, found {dim!r}.")
    if dim >= 0 and not allow_positive:
        raise SpecError(
            f"{owner}: {name}={dim} counts from the front, where batches add dimensions. Count from the back "
            f"({name}=-1 is the last one), or pass allow_positive_dim=True to count from the first one after the batch."
        )
    return dim


def some_keys(owner: str, *keys: Any) -> None:
    """Raise an error if no key was passed."""
    if not any(keys):
        raise SpecError(f"{owner}: expected keys, found none. Pass in_keys=[...], or in_keys_inv=[...] for actions.")
