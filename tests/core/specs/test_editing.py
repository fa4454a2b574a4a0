"""Specs that are edited in place: bounds, shapes, dtypes and devices of leaves; and slices that go backwards."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Unbounded,
)


def test_bounds_are_edited_by_assignment() -> None:
    spec = Bounded(-1, 1, (2, 3))
    spec.space.low = torch.full((2, 3), -5.0)
    spec.space.high = 7
    assert spec == Bounded(-5, 7, (2, 3))
    spec.space = Bounded(0, 4, (2, 3)).space
    assert spec == Bounded(0, 4, (2, 3))


def test_assigned_bounds_hold_element_by_element() -> None:
    spec = Bounded(-1, 1, (3,))
    spec.space.low = torch.tensor([-9.0, -1.0, -1.0])
    spec.space.high = 2
    assert spec.low.tolist() == [-9, -1, -1]
    assert spec.high.tolist() == [2, 2, 2]
    assert spec.is_in(torch.tensor([-8.0, 0.0, 2.0]))
    assert not spec.is_in(torch.tensor([0.0, -8.0, 0.0]))
    assert spec.rand((500,)).amin(0)[0] < -5
    assert spec != Bounded(-1, 2, (3,))


def test_bounds_that_are_read_are_copies() -> None:
    spec = Bounded(-1, torch.tensor([1.0, 2.0, 3.0]))
    spec.space.low[0] = -9
    spec.high[...] = 9
    assert spec == Bounded(-1, torch.tensor([1.0, 2.0, 3.0]))


def test_an_edit_of_bounds_reaches_the_entry_and_no_copy() -> None:
    spec = Composite(a=Bounded(-1, 1, (4, 3)), shape=(4,))
    copies = [spec.clone(), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), spec[:], spec.to(torch.float64)]
    spec["a"].space.low = -3
    assert spec["a"].low.tolist() == [[-3] * 3] * 4
    assert all(other["a"].low.tolist() == [[-1] * 3] * 4 for other in copies)


def test_an_edit_is_in_what_is_made_of_the_spec() -> None:
    spec = Bounded(-1, 1, (3,))
    spec.space.low = torch.tensor([-1.0, -1.0, -4.0])
    for other in (spec.clone(), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), spec.expand(2, 3)[0]):
        assert other.low.tolist() == [-1, -1, -4]
    assert spec[::-1].low.tolist() == [-4, -1, -1]


def test_a_spec_takes_the_shape_and_dtype_of_new_bounds() -> None:
    """New bounds first need spec.shape to be set, as the error says."""
    spec = Bounded(0, 255, (84, 84, 3), dtype=torch.uint8)
    spec.space.low = torch.zeros(3, 8, 8)
    spec.space.high = torch.ones(3, 8, 8)
    with pytest.raises(SpecError, match=r"Give it theirs: spec\.shape = spec\.space\.low\.shape"):
        spec.rand()
    spec.shape = spec.space.low.shape
    spec.dtype = torch.float32
    assert spec == Bounded(0, 1, (3, 8, 8))
    assert spec.rand().max() > 0


def test_a_box_has_an_equal_copy() -> None:
    box = Bounded(torch.tensor([0.0, 1.0]), 5).space
    assert box.clone() == box


@pytest.mark.parametrize(
    "spec", [Unbounded((3,)), Bounded(0, 1, (3,)), Binary(3), Categorical(4, (3,)), OneHot(3), NonTensor((3,))]
)
def test_a_shape_is_assigned(spec) -> None:
    expected = spec.expand(2, 3)
    spec.shape = (2, 3)
    assert spec == expected


@pytest.mark.parametrize(
    "spec",
    [
        Bounded(torch.zeros(3), torch.arange(1.0, 4.0)),
        OneHot(3),
        MultiOneHot([1, 2]),
        MultiCategorical([1, 2, 3]),
        Categorical(3, (3,), mask=torch.eye(3).bool()),
    ],
)
def test_a_shape_that_the_domain_does_not_allow_is_refused(spec) -> None:
    with pytest.raises(SpecError):
        spec.shape = (4,)
    assert spec.shape == (3,)


def test_masks_follow_an_assigned_shape() -> None:
    spec = Categorical(3, (1,), mask=torch.tensor([True, False, True]))
    spec.shape = (5, 2)
    assert spec == Categorical(3, (5, 2), mask=torch.tensor([True, False, True]))


def test_a_device_is_assigned() -> None:
    spec = Bounded(0, 1, (3,))
    spec.device = "cpu"
    assert spec == Bounded(0, 1, (3,), device="cpu")
    spec.device = None
    assert spec == Bounded(0, 1, (3,))


def test_slices_that_go_backwards_take_bounds_and_masks_along() -> None:
    low = torch.arange(6.0).view(2, 3)
    spec = Bounded(low, 9)
    assert torch.equal(spec[::-1].low, low.flip(0))
    assert torch.equal(spec[:, ::-2].low, low[:, [2, 0]])
    assert torch.equal(spec[..., None, 1::-1].low, low[:, [1, 0]].unsqueeze(1))
    assert spec[torch.tensor([True, False]), ::-1].low.tolist() == [[2, 1, 0]]
    assert spec[1:0:-1, 2:5:-1].shape == (1, 0)
    mask = torch.tensor([[True, False], [True, True]])
    assert torch.equal(Categorical(2, (2,), mask=mask)[::-1].mask, mask.flip(0))
