"""Zeros and ones."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import (
    Binary,
    Categorical,
    CategoricalBox,
    OneHot,
)


def test_a_binary_spec_needs_a_size() -> None:
    assert Binary(4).shape == (4,)
    assert Binary(1, shape=(5, 1), dtype=torch.bool).shape == (5, 1)
    assert Binary(shape=()).cardinality() == 2
    with pytest.raises(SpecError, match="found neither"):
        Binary()
    with pytest.raises(SpecError, match=r"last size is n=4, found \(3,\)"):
        Binary(4, shape=(3,))


def test_binary_data_is_zero_or_one() -> None:
    spec = Binary(3)
    assert not spec.is_in(torch.tensor([0, 1, 2], dtype=torch.int8))
    assert spec.project(torch.tensor([0.2, 0.8, 7.0])).tolist() == [0, 1, 1]
    assert spec.project(torch.tensor([-3, 1, 7])).tolist() == [0, 1, 1]


def test_binary_rows_are_listed_in_counting_order() -> None:
    assert Binary(2).enumerate().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert Binary(2, (3, 2)).enumerate().shape == (4, 3, 2)
    assert Binary(2).cardinality() == 4
    with pytest.raises(NotSupported, match="more than 16777216 data"):
        Binary(30).enumerate()


def test_binary_index_picks_the_ones() -> None:
    values = torch.arange(6.0).view(2, 3)
    assert Binary(3).index(torch.tensor([[0, 1, 1], [1, 0, 1]]), values).tolist() == [[1, 2], [3, 5]]
    with pytest.raises(SpecError, match="equal numbers of ones"):
        Binary(3).index(torch.tensor([[0, 1, 1], [0, 0, 1]]), values)


def test_binary_rows_may_be_empty() -> None:
    assert Binary(0).rand().shape == (0,)
    assert Binary(n=0, shape=()).rand().shape == ()


def test_a_binary_spec_is_a_categorical_of_two() -> None:
    spec = Binary(3)
    assert isinstance(spec, Categorical)
    assert (spec.n, spec.space, spec.mask) == (2, CategoricalBox(2), None)
    assert spec.cardinality() == len(spec.enumerate()) == 8
    rows = spec.to_one_hot(torch.tensor([1, 0, 1], dtype=torch.int8))
    assert rows.int().tolist() == [[0, 1], [1, 0], [0, 1]]
    assert spec.to_one_hot_spec() == OneHot(2, (3, 2))
    assert spec.to_one_hot_spec().is_in(rows)


def test_a_binary_spec_takes_a_mask() -> None:
    spec = Binary(3)
    spec.update_mask([[True, True], [True, False], [False, True]])
    drawn = spec.rand((50,))
    assert drawn[:, 0].unique().tolist() == [0, 1]
    assert drawn[:, 1:].unique(dim=0).tolist() == [[0, 1]]
    assert spec.is_in(drawn)
    assert spec.enumerate(use_mask=True).tolist() == [[0, 0, 1], [1, 0, 1]]
    assert len(spec.enumerate()) == 8
    assert spec.project(torch.tensor([1, 1, 0])).tolist() == [1, 0, 1]
    assert spec.expand(4, 3)[0] == spec
    rows = Binary(shape=(2, 1))
    rows.update_mask([[[True, False]], [[False, True]]])
    with pytest.raises(NotSupported, match="different categories"):
        rows.enumerate(use_mask=True)
