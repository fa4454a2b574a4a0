"""Spec classes that stand for one domain, and errors for unknown arguments."""

from __future__ import annotations

import pytest
import torch

import steppe
from steppe.errors import SpecError
from steppe.specs import (
    Bounded,
    BoundedContinuous,
    BoundedDiscrete,
    Categorical,
    OneHot,
    Spec,
    Unbounded,
    UnboundedContinuous,
    UnboundedDiscrete,
)


def test_names_of_domains_are_names_of_specs() -> None:
    floats, integers = Bounded(0, 1, (3,)), Bounded(0, 5, (3,), dtype=torch.int64)
    assert isinstance(floats, BoundedContinuous)
    assert not isinstance(floats, (BoundedDiscrete, UnboundedContinuous))
    assert isinstance(integers, BoundedDiscrete)
    assert isinstance(Unbounded((3,)), UnboundedContinuous)
    assert isinstance(Unbounded((3,), dtype=torch.uint8), UnboundedDiscrete)
    assert not isinstance(Categorical(3), (BoundedDiscrete, UnboundedDiscrete))
    assert BoundedContinuous(0, 1, (3,)) == floats
    assert BoundedDiscrete(low=0, high=5, shape=(3,), dtype=torch.int64) == integers
    assert UnboundedContinuous((3,)) == Unbounded((3,))
    assert UnboundedDiscrete((3,)) == Unbounded((3,), dtype=torch.int64)
    assert UnboundedDiscrete((3,), None, torch.int32).dtype is torch.int32
    assert steppe.TensorSpec is Spec
    assert steppe.BoundedContinuous is BoundedContinuous


def test_a_domain_can_be_given() -> None:
    spec = Bounded(0, 5, (3,), dtype=torch.int64, domain="continuous")
    assert isinstance(spec, BoundedContinuous)
    assert spec.expand(2, 3)[0] == spec != Bounded(0, 5, (3,), dtype=torch.int64)
    assert spec.to(torch.int32).domain == "discrete"
    assert Unbounded((3,), domain="discrete").domain == "discrete"
    with pytest.raises(SpecError, match="found 'round'"):
        Unbounded((3,), domain="round")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Bounded(minimum=0, maximum=1), "Bounded has no argument 'minimum': it takes low, high"),
        (lambda: OneHot(3, shpae=(3,)), "OneHot has no argument 'shpae': did you mean 'shape'"),
        (lambda: UnboundedDiscrete((3,), low=3), "Unbounded has no argument 'low': it takes shape, device"),
        (lambda: Bounded(0), "missing 1 required positional argument: 'high'"),
    ],
)
def test_an_argument_that_does_not_exist_is_named(make, text) -> None:
    with pytest.raises(TypeError, match=text):
        make()
