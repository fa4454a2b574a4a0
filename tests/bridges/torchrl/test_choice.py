"""Choice: the contract of all specs, and its own rules."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack

import steppe
import steppe.specs
from steppe.errors import NotSupported, SpecError
from steppe.specs import Binary, Bounded, Categorical, Composite, NonTensor, Spec, Unbounded
from tests.core.specs.test_spec import (  # noqa: F401
    test_attributes_say_what_the_data_is,
    test_data_is_made_checked_and_converted,
    test_devices_are_set_and_cleared,
    test_dimensions_can_be_split_and_joined,
    test_indices_that_make_no_sense_are_refused,
    test_memoize_encode_has_no_effect,
    test_nothing_makes_is_in_raise,
    test_rows_are_judged_one_by_one_unless_the_check_is_exact,
    test_second_names_do_the_same,
    test_sizes_become_dynamic,
    test_slices_may_go_backwards,
)

pytest.importorskip("torchrl")
Choice = pytest.importorskip("steppe_torchrl").Choice

pytestmark = pytest.mark.matrix

SPECS = {
    "specs": lambda: Choice([Categorical(3, (2, 3)), Categorical(4, (2, 3))]),
    "values": lambda: Choice([NonTensorData(x, batch_size=(2, 3)) for x in ("a", "b")]),
}


@pytest.fixture(params=SPECS)
def spec(request: pytest.FixtureRequest) -> Spec:
    """The specs for the tests of the contract, which test the core's specs in tests/core/specs."""
    return SPECS[request.param]()


def test_the_core_finds_it_by_name() -> None:
    assert steppe.Choice is steppe.specs.Choice is Choice


def test_every_choice_is_drawn_and_is_in() -> None:
    spec = Choice([Bounded(0, 1, (2,)), Bounded(5, 6, (2,)), Bounded(8, 9, (2,))])
    drawn = spec.rand((300,), generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (300, 2)
    assert all(spec.is_in(row) for row in drawn)
    assert [int(((drawn[:, 0] - low).abs() <= 1).sum() > 60) for low in (0, 5, 8)] == [1, 1, 1]
    assert spec.num_choices == 3
    assert not spec.is_in(torch.tensor([0.5, 5.5]))
    assert spec.is_in(spec.project(torch.tensor([3.0, 3.0])))
    with pytest.raises(SpecError, match=r"'x': expected data of one of 3 specs\. Of the first: 'x': expected values"):
        spec.assert_is_in(torch.tensor([3.0, 3.0]), key="x")


def test_values_are_chosen_by_equality() -> None:
    spec = Choice([NonTensorData("left"), NonTensorData("right")])
    drawn = spec.rand((200,), generator=torch.Generator().manual_seed(0))
    assert set(drawn.tolist()) == {"left", "right"}
    assert spec.is_in(NonTensorData("left"))
    assert spec.is_in("right")
    assert not spec.is_in("up")
    assert spec.cardinality() == 2
    assert spec.enumerate().tolist() == ["left", "right"]
    assert spec.zero().data == "left"


def test_composites_may_be_chosen() -> None:
    spec = Choice([Composite(a=Bounded(0, 1)), Composite(a=Bounded(5, 6))])
    drawn = spec.rand((50,), generator=torch.Generator().manual_seed(0))
    assert drawn.batch_size == (50,)
    assert all(spec.is_in(row) for row in drawn)
    assert 5 < int((drawn["a"] > 3).sum()) < 45


def test_choices_follow_shapes_together() -> None:
    spec = Choice([Categorical(2, (3,)), Categorical(4, (3,))])
    assert spec.expand(5, 3)[0] == spec
    assert spec.unsqueeze(0).squeeze(0) == spec == spec.clone()
    assert spec.reshape(3, 1).flatten() == spec
    assert [part.shape for part in spec.unbind(0)] == [()] * 3
    assert spec.cardinality() == 6
    assert spec.enumerate().shape == (6, 3)
    assert spec.to("cpu").device == torch.device("cpu")
    assert spec.encode([0, 1, 3]).tolist() == [0, 1, 3]
    assert "Categorical(n=4" in repr(spec)


def test_unequal_choices_are_refused() -> None:
    with pytest.raises(SpecError, match="one class, shape, dtype and device"):
        Choice([Unbounded((1,)), Unbounded((2,))])
    with pytest.raises(SpecError, match="at least one"):
        Choice([])
    with pytest.raises(SpecError, match="found int"):
        Choice([3])
    with pytest.raises(SpecError, match="expected a list of choices, found 'ab'"):
        Choice("ab")


def test_strings_may_be_chosen() -> None:
    spec = Choice(["left", "right"])
    assert spec == Choice([NonTensorData("left"), NonTensorData("right")])
    assert {spec.rand(generator=torch.Generator().manual_seed(seed)).data for seed in range(9)} == {"left", "right"}
    assert spec.is_in("right")
    assert not spec.is_in("up")
    in_composite = Composite(side=spec)
    assert in_composite.is_in(in_composite.rand())
    assert in_composite.is_in(in_composite.rand((5,)))


def test_stacks_of_values_may_be_chosen() -> None:
    spec = Choice([NonTensorStack("a", "b"), NonTensorStack("c", "d")])
    assert spec.shape == (2,)
    assert spec.zero().tolist() == ["a", "b"]
    assert {tuple(spec.rand(generator=torch.Generator().manual_seed(seed)).tolist()) for seed in range(9)} == {
        ("a", "b"),
        ("c", "d"),
    }
    assert spec.is_in(NonTensorStack("c", "d"))
    assert not spec.is_in(NonTensorStack("a", "d"))
    assert spec.is_in(NonTensorStack(NonTensorStack("a", "b"), NonTensorStack("c", "d")))
    assert not spec.is_in(NonTensorStack(NonTensorStack("a", "b"), NonTensorStack("a", "d")))
    assert spec.enumerate().tolist() == [["a", "b"], ["c", "d"]]


def test_stacks_of_values_follow_operations_on_shapes() -> None:
    spec = Choice([NonTensorStack("a", "b", "c"), NonTensorStack("d", "e", "f")])
    assert spec[::-1].zero().tolist() == ["c", "b", "a"]
    assert spec[1].zero().data == "b"
    assert spec.expand(2, 3).zero().tolist() == [["a", "b", "c"]] * 2
    assert spec.unsqueeze(1).zero().tolist() == [["a"], ["b"], ["c"]]
    assert [part.zero().data for part in spec.unbind(0)] == ["a", "b", "c"]
    assert spec.clone() == spec
    assert spec != spec[::-1]
    with pytest.raises(NotSupported, match="number of stacked specs is fixed"):
        spec.make_neg_dim(0)


def test_stacks_of_values_keep_their_values_on_any_device() -> None:
    spec = Choice([NonTensorStack("a", "b"), NonTensorStack("c", "d")]).to("meta")
    assert spec.device == torch.device("meta")
    assert spec.zero().tolist() == ["a", "b"]
    assert spec.to("meta") is spec


def test_the_choice_that_holds_a_value_encodes_it(monkeypatch) -> None:
    monkeypatch.setattr("steppe.specs.base.CHECKED", True)
    spec = Choice([Bounded(0, 1, (1,)), Bounded(5, 6, (1,))])
    assert spec.encode([5.5]).tolist() == [5.5]
    assert spec.to_numpy(torch.tensor([5.5])).tolist() == [5.5]
    with pytest.raises(SpecError, match="from 0 to 1"):
        spec.encode([3])


@pytest.mark.parametrize("lead", [(6,), (5, 2), (0,)], ids=str)
def test_rows_go_to_numpy_and_back(lead) -> None:
    spec = Choice([Categorical(3, (2,)), Categorical(4, (2,))])
    rows = spec.rand(lead, generator=torch.Generator().manual_seed(0))
    for encoded in (spec.encode(rows), spec.encode(spec.to_numpy(rows), lead=lead), spec.encode(rows, lead=lead)):
        spec.assert_is_in(encoded)
        assert encoded.shape == rows.shape
        assert bool((encoded == rows).all())
    for wrong in ((), (7,)):
        with pytest.raises(SpecError):
            spec.encode(rows, lead=wrong)


def test_rows_of_several_choices_are_converted_with_checks(monkeypatch) -> None:
    monkeypatch.setattr("steppe.specs.base.CHECKED", True)
    spec = Choice([Bounded(0, 1, (1,)), Bounded(5, 6, (1,))])
    assert spec.to_numpy(torch.tensor([[0.5], [5.5]])).tolist() == [[0.5], [5.5]]
    with pytest.raises(SpecError, match="from 0 to 1"):
        spec.to_numpy(torch.tensor([[0.5], [3.0]]))


def test_values_are_encoded_with_the_data_beside_them() -> None:
    spec = Composite(x=Unbounded((2,)), text=NonTensor(example_data="a"), kind=Choice(["u", "v"]))
    encoded = spec.encode({"x": torch.zeros(3, 2), "text": ["p", "q", "r"], "kind": "v"}, lead=(3,))
    assert encoded[1]["kind"] == "v"
    assert spec["kind"].is_in(spec["kind"].encode(NonTensorStack("u", "v", "u")))


def test_data_is_counted_and_listed() -> None:
    spec = SPECS["specs"]()
    assert len(spec.enumerate()) == spec.cardinality()
    assert all(spec.is_in(row) for row in spec.enumerate())
    assert Choice([Composite(a=Binary(5_000)), Composite(a=Unbounded(()))]).cardinality() == math.inf


def test_data_without_a_device_is_on_the_cpu() -> None:
    torch.set_default_device("meta")
    try:
        spec = Choice([Bounded(0, 1, (2,)), Bounded(2, 3, (2,))])
        for data in (spec.rand(), spec.rand((5,)), spec.zero(), spec.one((5,)), spec.expand(4, 2).rand()):
            assert data.device.type == "cpu"
        assert spec.is_in(spec.project(spec.rand()))
    finally:
        torch.set_default_device(None)
