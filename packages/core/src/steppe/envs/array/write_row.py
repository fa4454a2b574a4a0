"""Writing a value into its row of arrays: numpy would repeat one that is too small, which is never meant."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steppe.errors import SpecError

__all__ = ["write_row", "wrong_shape"]


def write_row(out: dict[Any, np.ndarray[Any, Any]], key: Any, value: Any) -> None:
    """Copy a value into ``out[key]``, in ``reset_into`` and ``step_into`` of an array environment.

    It does what ``out[key][...] = value`` does, except that a value of another shape is an error instead of being
    repeated until it fills the row. That takes 0.2 us.

    Args:
        out: the rows that the method was given.
        key: one of its keys.
        value: an array, a number or a list, of the shape of the spec. Numbers are cast to the spec's dtype.

    Raises:
        SpecError: the value has another shape than the spec.
    """
    row = out[key]
    try:
        if value.shape != row.shape:
            raise wrong_shape(key, row.shape, value)
    except AttributeError:  # a number or a list
        value = np.asarray(value)
        if value.shape != row.shape:
            raise wrong_shape(key, row.shape, value) from None
    row[...] = value


def wrong_shape(key: Any, expected: tuple[int, ...], value: Any, *, space: bool = False) -> SpecError:
    """The error of a value that does not have the shape of its row.

    Args:
        key: where it should go.
        expected: the shape of the row.
        value: what was to be written.
        space: whether the spec was made from a space of a library, which returned the value.
    """
    try:
        found = tuple(np.shape(value))
    except ValueError:  # a list of lists of different lengths
        return SpecError(f"{key!r} must have shape {tuple(expected)}, found {type(value).__name__} without a shape.")
    text = f"{key!r} must have shape {tuple(expected)}, as its"
    if space:
        return SpecError(f"{text} space says; the library returned {found}. Change the environment, or its space.")
    if found == () and expected == (1,):
        hint = f"Write out[{key!r}][0] = value."
    elif math.prod(found) == math.prod(expected):
        hint = f"Write value.reshape({tuple(expected)})."
    else:
        hint = "Change the value, or the shape of the spec."
    return SpecError(f"{text} spec says, found {found}. {hint}")
