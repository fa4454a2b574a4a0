"""Copy a value into its row, and refuse what numpy would repeat or cast to NaN without an error."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.envs.action_hints import same_order
from steppe.envs.data_types import Array, Key
from steppe.errors import ActionError, SpecError

__all__ = ["as_flag", "as_numbers", "name_place", "write_row", "wrong_shape"]

#: Kinds of numpy's dtypes that hold numbers or bools. Objects and text are excluded: a cast makes NaN of None.
_NUMBERS = "biufc"
_TRUTH_VALUES = frozenset((bool, np.bool_))


def write_row(out: dict[Any, Array], key: Key, value: Any) -> None:
    """Copy a value into ``out[key]``, in ``reset_into`` and ``step_into`` of an array environment.

    It does what ``out[key][...] = value`` does, except that a value of another shape is an error instead of being
    repeated until it fills the row, and that None and text are errors instead of being cast. That takes 0.3 us.

    Args:
        out: the argument ``out`` of the method.
        key: a key of ``out``.
        value: an array, a number or a list, of the shape of the spec. Numbers are cast to the spec's dtype.

    Raises:
        SpecError: the value has another shape than the spec, or is not a number.
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


def as_numbers(key: Key, value: object, shape: tuple[int, ...] = ()) -> Array:
    """Return a value as an array of numbers.

    Args:
        key: the key of the entry; for errors.
        value: an array, a number, a list or a tensor.
        shape: the shape that it should have; for errors. It is not checked here.

    Raises:
        SpecError: the value is None, text or another object, or a list that contains one.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        raise wrong_shape(key, shape, value) from None
    if array.dtype.kind not in _NUMBERS:
        raise SpecError(f"{key!r} must be a number, or an array of numbers; found {value!r}.")
    return array


def as_flag(name: str, value: object) -> bool:
    """Return a done entry of a library as a bool.

    Args:
        name: ``"terminated"`` or ``"truncated"``; for errors.
        value: a bool, or a number or an array with a single element.

    Raises:
        SpecError: it is something else. numpy would take None for False, and text for True.
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
    """Put the place of the call in front of the text of an error, unless the text names the environment.

    Args:
        error: an error of a call of ``env``; only a SpecError that is not an ActionError is changed.
        env: an array environment.
        method: ``"step"`` or ``"reset"``.
    """
    if isinstance(error, SpecError) and not isinstance(error, ActionError) and repr(env) not in str(error):
        error.args = (f"{env.place_of_call(method)}: {error}",)


def wrong_shape(key: Key, expected: tuple[int, ...], value: Any, *, space: bool = False) -> SpecError:
    """Return the error of a value that does not have the shape of its row.

    Args:
        key: the key of the row.
        expected: the shape of the row.
        value: the value.
        space: whether the spec was made from a space of a library, which also returned the value.
    """
    try:
        value_shape = tuple(np.shape(value))
    except ValueError:  # a list of lists of different lengths
        return SpecError(f"{key!r} must have shape {tuple(expected)}, found {type(value).__name__} without a shape.")
    text = f"{key!r} must have shape {tuple(expected)}, as its"
    if space:
        return SpecError(
            f"{text} space says; the library returned {value_shape}. Change the environment, or its space."
        )
    if value_shape == () and expected == (1,):
        hint = f"Write out[{key!r}][0] = value."
    elif same_order(value_shape, tuple(expected)):
        hint = f"Write np.reshape(value, {tuple(expected)})."
    else:
        hint = "Change the value, or the shape of the spec."
    return SpecError(f"{text} spec says, found {value_shape}. {hint}")
