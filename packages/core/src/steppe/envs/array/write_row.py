"""Writing a value into its row of arrays: numpy would repeat one that is too small, and makes NaN of None."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensordict import NestedKey

from steppe.envs.action_hints import same_order
from steppe.envs.data_types import Array
from steppe.errors import ActionError, SpecError

__all__ = ["as_flag", "as_numbers", "name_place", "write_row", "wrong_shape"]

#: Kinds of numpy's dtypes that hold numbers or truth values. Objects and text are none: a cast makes NaN of None.
_NUMBERS = "biufc"
_TRUTH_VALUES = frozenset((bool, np.bool_))


def write_row(out: dict[Any, Array], key: NestedKey, value: Any) -> None:
    """Copy a value into ``out[key]``, in ``reset_into`` and ``step_into`` of an array environment.

    It does what ``out[key][...] = value`` does, except that a value of another shape is an error instead of being
    repeated until it fills the row, and that None and text are errors instead of being cast. That takes 0.3 us.

    Args:
        out: the rows that the method was given.
        key: one of its keys.
        value: an array, a number or a list, of the shape of the spec. Numbers are cast to the spec's dtype.

    Raises:
        SpecError: the value has another shape than the spec, or is no number.
    """
    row = out[key]
    try:
        if value.shape != row.shape:
            raise wrong_shape(key, row.shape, value)
        is_number = value.dtype is row.dtype or value.dtype.kind in _NUMBERS
    except AttributeError:  # a number, a list or a tensor
        is_number = False
    if not is_number:
        value = as_numbers(key, value, row.shape)
        if value.shape != row.shape:
            raise wrong_shape(key, row.shape, value)
    row[...] = value


def as_numbers(key: NestedKey, value: Any, shape: tuple[int, ...] = ()) -> Array:
    """Return a value as an array of numbers.

    Args:
        key: the entry that it is for; for errors.
        value: an array, a number, a list or a tensor.
        shape: that it should have; for errors. Others are returned too.

    Raises:
        SpecError: it is None, text or another object, or a list that holds one.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        raise wrong_shape(key, shape, value) from None
    if array.dtype.kind not in _NUMBERS:
        raise SpecError(f"{key!r} must be a number, or an array of numbers; found {value!r}.")
    return array


def as_flag(name: str, value: Any) -> bool:
    """Return a done entry of a library as a bool.

    Args:
        name: ``"terminated"`` or ``"truncated"``; for errors.
        value: a bool, or a number or an array that holds a single one.

    Raises:
        SpecError: it is something else. None would count as False, and text as True.
    """
    if type(value) in _TRUTH_VALUES:
        return bool(value)
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        array = np.empty(0)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise SpecError(f"{name!r} must be True or False; found {value!r}.")
    return bool(array.item())


def name_place(error: Exception, env: Any, method: str) -> None:
    """Put where an error about a value happened in front of what it says, unless the environment is named there.

    Args:
        error: of a call of ``env``; others than a SpecError stay as they are, and those about actions, which name it.
        env: an array environment.
        method: ``"step"`` or ``"reset"``.
    """
    if isinstance(error, SpecError) and not isinstance(error, ActionError) and repr(env) not in str(error):
        error.args = (f"{env.place_of_call(method)}: {error}",)


def wrong_shape(key: NestedKey, expected: tuple[int, ...], value: Any, *, space: bool = False) -> SpecError:
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
    elif same_order(found, tuple(expected)):
        hint = f"Write np.reshape(value, {tuple(expected)})."
    else:
        hint = "Change the value, or the shape of the spec."
    return SpecError(f"{text} spec says, found {found}. {hint}")
