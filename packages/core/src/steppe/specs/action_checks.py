"""Functions that check whether actions are valid choices, as fast as each kind of spec allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "PYTHON_LIMIT",
    "ArrayCheck",
    "NumberCheck",
    "check_below",
    "check_each_below",
    "check_numbers_below",
    "check_one_hot",
]

ArrayCheck: TypeAlias = "Callable[[np.ndarray], bool]"
#: A check of one action as Python numbers: a number, or a list of numbers.
NumberCheck: TypeAlias = "Callable[[Any], bool]"

#: numpy checks arrays of more numbers than this faster than Python does.
PYTHON_LIMIT = 32


def check_one_hot(sizes: Sequence[int]) -> ArrayCheck:
    """Check one-hot vectors of these sizes, which lie end to end in the last dimension."""
    if len(sizes) == 1:
        return _check_rows(sizes[0])
    ends = np.cumsum(sizes).tolist()
    parts = [(slice(end - n, end), _check_rows(n)) for end, n in zip(ends, sizes, strict=True)]
    return lambda array: all(check(array[..., part]) for part, check in parts)


def _check_rows(n: int) -> ArrayCheck:
    rows_of: dict[np.dtype, np.ndarray] = {}

    def check(array: np.ndarray) -> bool:
        rows = rows_of.get(array.dtype)
        if rows is None:
            rows = rows_of[array.dtype] = np.eye(n, dtype=array.dtype)
        if rows.take(array.argmax(-1), 0).tobytes() == array.tobytes():
            return True
        # Floating-point rows may hold -0.0, which has other bytes than 0.0.
        return bool(array.dtype.kind == "f" and np.array_equal(rows.take(array.argmax(-1), 0), array))

    return check


def check_below(n: int) -> ArrayCheck:
    """Check whole numbers from 0 to ``n - 1``."""

    def check(array: np.ndarray) -> bool:
        if array.size > PYTHON_LIMIT:
            return bool(array.min() >= 0 and array.max() < n) and _is_whole(array)
        numbers = array.ravel().tolist()
        return not numbers or (max(numbers) < n and min(numbers) >= 0 and _is_whole(array))

    return check


def check_each_below(counts: np.ndarray) -> ArrayCheck:
    """Check whole numbers from 0 to below ``counts``, which broadcasts to the array."""
    return lambda array: bool(((array >= 0) & (array < counts)).all()) and _is_whole(array)


def check_numbers_below(counts: Sequence[int]) -> NumberCheck:
    """Check a list of whole numbers, each from 0 to below its own count."""
    lasts = [n - 1 for n in counts]

    def check(row: list[float]) -> bool:
        # A generator in all() takes half as long again.
        for number, last in zip(row, lasts, strict=True):
            if not 0 <= number <= last or number != int(number):
                return False
        return True

    return check


def _is_whole(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool((array == np.floor(array)).all())
