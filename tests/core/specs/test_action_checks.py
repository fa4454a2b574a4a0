"""Checks of actions as arrays and as Python numbers agree with the specs that they serve."""

from __future__ import annotations

import numpy as np
import pytest

from steppe.specs.action_checks import (
    PYTHON_LIMIT,
    check_below,
    check_each_below,
    check_numbers_below,
    check_one_hot,
)


@pytest.mark.parametrize("dtype", [bool, np.int64, np.float32])
def test_rows_with_a_single_one_are_one_hot(dtype: type) -> None:
    check = check_one_hot([4])
    rows = np.eye(4, dtype=dtype)[[2, 0, 3]]

    assert check(rows)
    assert check(rows[1])
    for wrong in ([0, 0, 0, 0], [1, 0, 1, 0]):
        assert not check(np.array([rows[0], wrong], dtype=dtype))


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0, np.nan])
def test_other_numbers_than_one_are_not_one_hot(value: float) -> None:
    assert not check_one_hot([3])(np.array([0.0, value, 0.0], dtype=np.float32))


def test_a_negative_zero_is_a_zero_of_a_one_hot_vector() -> None:
    assert check_one_hot([3])(np.array([-0.0, 1.0, 0.0], dtype=np.float32))


def test_each_part_of_joined_vectors_must_be_one_hot() -> None:
    check = check_one_hot([2, 3])

    assert check(np.array([[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]))
    assert not check(np.array([1, 1, 0, 0, 0]))
    assert not check(np.array([0, 1, 0, 0, 0]))


@pytest.mark.parametrize("size", [1, PYTHON_LIMIT, PYTHON_LIMIT + 1, 4 * PYTHON_LIMIT])
@pytest.mark.parametrize("wrong", [-1, 7, 2.5])
def test_numbers_in_arrays_of_any_size_are_checked(size: int, wrong: float) -> None:
    check = check_below(7)
    array = (np.arange(size) % 7).astype(np.float64)
    assert check(array)

    array[-1] = wrong

    assert not check(array)


def test_an_array_without_numbers_is_valid() -> None:
    assert check_below(3)(np.zeros((0, 2), dtype=np.int64))


@pytest.mark.parametrize(
    ("row", "valid"),
    [([1, 0, 4], True), ([1.0, 0.0, 4.0], True), ([2, 0, 4], False), ([1, -1, 4], False), ([0.5, 0, 4], False)],
)
def test_each_number_has_a_limit_of_its_own(row: list[float], valid: bool) -> None:
    counts = [2, 1, 5]

    assert check_numbers_below(counts)(row) is valid
    assert check_each_below(np.array(counts))(np.array([row, [0, 0, 0]])) is valid
