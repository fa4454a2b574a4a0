"""One choice as a one-hot vector."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from steppe.errors import IgnoredArgumentWarning, SpecError
from steppe.specs import (
    MultiOneHot,
    OneHot,
)

MASK = torch.tensor([[True, False, True], [False, True, False]])


def test_one_hot_zeros_are_storage_and_not_in_the_domain() -> None:
    spec = OneHot(3)
    assert spec.zero().tolist() == [False] * 3
    assert not spec.is_in(spec.zero())
    assert not spec.is_in(spec.one())


@pytest.mark.parametrize("row", [[0, 0, 0], [1, 1, 0], [2, 0, 0], [1, -1, 1]])
def test_rows_without_a_single_one_are_not_one_hot(row: list[int]) -> None:
    spec = OneHot(3, dtype=torch.int64)
    assert not spec.is_in(torch.tensor(row))
    assert spec.is_in(spec.project(torch.tensor(row)))


def test_one_hot_projection_takes_the_best_allowed_score() -> None:
    spec = OneHot(3, (2, 3), mask=MASK)
    scores = torch.tensor([[0.1, 5.0, 0.3], [9.0, -2.0, 3.0]])
    assert spec.project(scores).long().tolist() == [[0, 0, 1], [0, 1, 0]]


def test_numbers_are_encoded_as_one_hot_vectors() -> None:
    spec = OneHot(3, (2, 3))
    assert spec.encode([2, 0]).long().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert OneHot(3).encode(np.int64(1)).tolist() == [False, True, False]
    assert OneHot(3).encode([False, True, False]).tolist() == [False, True, False]
    for wrong in ([3, 0], [-1, 0], [0.5, 0.0]):
        with pytest.raises(SpecError, match="'action': expected a whole number from 0 to 2"):
            spec.encode(wrong, key="action")
    with pytest.raises(SpecError, match=r"found \(3,\).*Category numbers of shape \(2,\)"):
        spec.encode([0, 1, 2])


def test_one_hot_goes_to_numpy_as_numbers() -> None:
    spec = OneHot(3)
    assert spec.to_numpy(torch.tensor([False, False, True])) == 2
    assert spec.to_numpy(spec.enumerate()).tolist() == [0, 1, 2]
    with pytest.raises(SpecError, match="expected one-hot, a single 1 among 3 entries"):
        spec.to_numpy(spec.zero(), safe=True)


def test_indexing_the_categories_of_one_hot_is_refused() -> None:
    spec = OneHot(3, (2, 3))
    for bad in (lambda: spec.flatten(), lambda: spec.unsqueeze(-1), lambda: spec[:, :2], lambda: spec[0, 0]):
        with pytest.raises(IndexError, match="holds the categories"):
            bad()
    assert spec[..., :].shape == (2, 3)
    assert spec[0].shape == (3,)
    with pytest.raises(SpecError, match="last size is the number of categories"):
        OneHot(3, (2, 4))


def test_use_register_has_no_effect() -> None:
    with pytest.warns(IgnoredArgumentWarning, match="OneHot: the argument use_register has no effect"):
        spec = OneHot(3, use_register=True)
    assert spec.use_register is True
    assert spec.encode(2).int().tolist() == [0, 0, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert OneHot(3, (3,), None, torch.bool, False, torch.tensor([True, False, True])).use_register is False
        assert MultiOneHot([2, 2], use_register=False).use_register is False


@pytest.mark.parametrize("make", [lambda *s: OneHot(7, (*s, 7)), lambda *s: MultiOneHot([3, 4], (*s, 7))])
def test_an_index_never_reaches_into_the_categories(make) -> None:
    """Indices count the dimensions of rows, and the categories stay whole."""
    spec = make(5, 3)
    assert spec[..., 0] == make(5)
    assert spec[..., :2] == make(5, 2)
    assert spec[1, ..., 2] == make()
    assert spec[..., None] == make(5, 3, 1)
    assert spec[..., [0, 1], [0]] == make(2)
    assert spec[..., :] == spec[:, :, :] == spec
    for wrong in (5, (0, 1, 2), (1, ..., 2, ..., 3), range(10), torch.tensor([10, 2])):
        with pytest.raises(IndexError):
            spec[wrong]
