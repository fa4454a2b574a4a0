"""The smallest and largest value of each element of a spec."""

from __future__ import annotations

import math

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    NonTensor,
    OneHot,
    Unbounded,
    mapped_bounds,
)

LEAVES = [
    (Bounded(-1.0, torch.tensor([1.0, 2.0])), [-1, -1], [1, 2]),
    (Unbounded((2,)), [-math.inf] * 2, [math.inf] * 2),
    (Unbounded((1,), dtype=torch.uint8), [0], [255]),
    (Binary(shape=(2,), dtype=torch.bool), [0, 0], [1, 1]),
    (OneHot(3), [0, 0, 0], [1, 1, 1]),
    (Categorical(5, shape=(1,)), [0], [4]),
    (MultiCategorical([2, 7]), [0, 0], [1, 6]),
]


@pytest.mark.parametrize(("leaf", "low", "high"), LEAVES)
def test_bounds_have_the_shape_and_dtype_of_the_data(leaf, low, high):
    found = leaf.bounds()

    assert [bound.tolist() for bound in found] == [low, high]
    assert [(bound.shape, bound.dtype) for bound in found] == [(leaf.shape, leaf.dtype)] * 2


def test_the_bounds_of_a_dynamic_size_are_of_size_one():
    assert Bounded(0.0, 1.0, (-1, 2)).bounds()[1].shape == (1, 2)
    assert mapped_bounds(Bounded(0.0, 4.0, (-1, 2)), torch.sqrt) == Bounded(0.0, 2.0, (-1, 2))


def test_a_function_that_grows_maps_the_bounds():
    assert mapped_bounds(Unbounded((2,)), torch.tanh) == Bounded(-1.0, 1.0, (2,))
    assert mapped_bounds(Bounded(0, 3, (2,), dtype=torch.int64), lambda x: x.double()).dtype is torch.float64


@pytest.mark.parametrize("spec", [Composite({"a": Unbounded()}), NonTensor()])
def test_bounds_need_a_spec_of_numbers(spec):
    with pytest.raises(SpecError, match="Expected a spec of numbers, found"):
        spec.bounds()


def test_specs_are_permuted_with_their_bounds():
    leaf = Bounded(torch.zeros(2, 3), torch.arange(6.0).reshape(2, 3))

    assert torch.equal(leaf.permute(1, 0).high, leaf.high.T)
    assert Categorical(5, shape=(2, 3)).permute(-1, -2) == Categorical(5, shape=(3, 2))
    with pytest.raises(SpecError, match="cannot permute"):
        leaf.permute(0, 1, 2)
