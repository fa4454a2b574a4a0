"""What errors suggest for invalid actions."""

from __future__ import annotations

import pytest
import torch

from steppe.envs import action_hints
from steppe.specs import Bounded


@pytest.mark.parametrize(("rows", "text"), [(None, ""), ([1, 3], "[[1, 3]]")])
def test_the_spec_of_an_action_is_an_expression(rows, text):
    assert action_hints.spec_of(("agents", "action"), rows) == f"env.full_action_spec[('agents', 'action')]{text}"


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [((3, 1), (3,), True), ((6,), (2, 3), True), ((2, 3), (3, 2), False), ((4,), (3,), False)],
)
def test_reshape_is_suggested_where_it_keeps_the_order(actual, expected, same):
    assert action_hints.same_order(actual, expected) is same


def test_values_that_are_no_numbers_get_no_conversion():
    assert "torch.as_tensor" in action_hints.as_tensor_hint([0.5])
    assert action_hints.as_tensor_hint(object()) == ""


def test_whole_floats_are_to_be_rounded():
    spec = Bounded(0, 5, shape=(1,), dtype=torch.int64)

    assert "action.round()" in action_hints.dtype_hint(spec, torch.tensor([1.25]), torch.int64, "spec")
    assert "not finite" in action_hints.dtype_hint(spec, torch.tensor([float("nan")]), torch.int64, "spec")
