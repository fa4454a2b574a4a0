"""Entries of a Composite: keys, lookup, changes."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Categorical, Composite, OneHot, Unbounded


@pytest.fixture
def spec() -> Composite:
    return Composite(
        {
            "observation": Bounded(-1, 1, (4, 3)),
            ("agents", "position"): Unbounded((4, 2)),
            ("agents", "move"): OneHot(5, (4, 5)),
        },
        shape=(4,),
    )


def test_tuple_keys_nest(spec: Composite) -> None:
    assert list(spec.keys()) == ["observation", "agents"]
    assert spec["agents", "move"] is spec["agents"]["move"] is spec.get(("agents", "move"))
    assert spec["agents"].shape == (4,)


def test_keys_may_be_nested_or_leaves_only(spec: Composite) -> None:
    leaves = ["observation", ("agents", "position"), ("agents", "move")]
    assert list(spec.keys(True, True)) == leaves
    assert list(spec.keys(include_nested=True)) == ["observation", "agents", *leaves[1:]]
    assert list(spec.keys(leaves_only=True)) == ["observation"]
    assert list(spec.keys(True, True, is_leaf=lambda cls: issubclass(cls, Composite))) == ["observation", "agents"]
    assert [type(leaf) for leaf in spec.values(True, True)] == [Bounded, Unbounded, OneHot]
    assert dict(spec.items())["agents"] is spec["agents"]


def test_keys_have_set_operations(spec: Composite) -> None:
    keys = spec.keys(True)
    assert ("agents", "move") in keys
    assert "move" not in keys
    assert spec.keys() - {"agents"} == {"observation"}
    assert len(keys) == 4


def test_entries_can_be_removed_in_a_loop_over_keys(spec: Composite) -> None:
    for key in spec.keys(True, True):
        del spec[key]
    assert spec.is_empty(recurse=True)


def test_containment_and_iteration_are_about_keys(spec: Composite) -> None:
    assert "agents" in spec
    assert ("agents", "move") in spec
    assert ("agents", "nothing") not in spec
    assert ("observation", "x") not in spec
    assert 3 not in spec
    assert list(spec) == ["observation", "agents"]
    assert len(spec) == 2
    assert Composite()


def test_keys_may_be_nested_in_nested_tuples(spec: Composite) -> None:
    nested = ("agents", ("move",))
    assert spec[nested] is spec["agents", "move"]
    assert nested in spec
    assert (("observation",),) in spec
    assert list(Composite({("a", ("b", "c")): Unbounded()}).keys(True, True)) == [("a", "b", "c")]
    spec[("agents", ("n", "m"))] = Unbounded((4, 1))
    assert spec.pop(("agents", ("n", ("m",)))) == Unbounded((4, 1))
    del spec[nested]
    assert nested not in spec


def test_a_missing_key_names_near_ones(spec: Composite) -> None:
    with pytest.raises(KeyError, match=r"no entry 'observations'.*Did you mean 'observation'"):
        spec["observations"]
    with pytest.raises(KeyError, match=r"\('agents', 'position'\)"):
        spec["agents", "positions"]
    assert spec.get("nothing", None) is None


def test_entries_can_be_replaced_and_removed(spec: Composite) -> None:
    spec["agents", "new", "deep"] = Binary(1, (4, 1))
    assert spec["agents", "new"].shape == (4,)
    del spec["agents", "new"]
    assert ("agents", "new") not in spec
    assert isinstance(spec.pop("observation"), Bounded)
    assert spec.pop("observation", None) is None
    with pytest.raises(KeyError, match="no entry 'observation'"):
        spec.pop("observation")


def test_update_merges_nested_entries(spec: Composite) -> None:
    returned = spec.update({"agents": {"speed": Unbounded((4, 1))}, ("agents", "move"): Categorical(5, (4,))})
    assert returned is spec
    assert list(spec["agents"].keys()) == ["position", "move", "speed"]
    assert isinstance(spec["agents", "move"], Categorical)


def test_exclude_leaves_the_spec_unchanged(spec: Composite) -> None:
    before = spec.clone()
    assert list(spec.exclude(("agents", "move"), "nothing").keys(True, True)) == ["observation", ("agents", "position")]
    assert spec == before


def test_separates_moves_entries_out(spec: Composite) -> None:
    taken = spec.separates("observation", ("agents", "move"))
    assert list(taken.keys(True, True)) == ["observation", ("agents", "move")]
    assert list(spec.keys(True, True)) == [("agents", "position")]
    assert spec.separates("nothing") is None
    assert list(spec.separates("nothing", ("agents", "position")).keys(True, True)) == [("agents", "position")]


def test_empty_keeps_shape_device_and_names() -> None:
    spec = Composite({"a": Unbounded((2, 1))}, shape=(2,), device="cpu", names=["x"])
    empty = spec.empty()
    assert (empty.shape, empty.device, empty.names, empty.is_empty()) == ((2,), torch.device("cpu"), ["x"], True)
    assert Composite(a=Composite()).is_empty(recurse=True)
    assert not Composite(a=Composite()).is_empty()


def test_mappings_become_composites() -> None:
    spec = Composite({"a": {"b": Unbounded((2, 1))}}, batch_size=[2], c=None)
    assert spec["a"].shape == (2,)
    assert Composite(spec, shape=(2,)) == spec


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: Composite(a=Unbounded((3,)), shape=(4,)),
            r"'a': expected a spec whose shape starts .*spec\.expand\(4, ",
        ),
        (lambda: Composite(a=3), "'a': expected a spec, a mapping or None, found int 3"),
        (lambda: Composite({}, {}), "at most one mapping"),
        (lambda: Composite({}, shape=(1,), batch_size=(2,)), "are the same thing"),
        (lambda: Composite({3: Unbounded()}), "Expected a name or a tuple of names, found 3"),
        (lambda: Composite({"a": Unbounded(), ("a", "b"): Unbounded()}), "the entry 'a' is a Unbounded"),
        (lambda: Composite(shape=(2,), names=["a", "b"]), r"expected 1 name\(s\)"),
        (lambda: Composite(shape=(2,)).__setitem__(0, Composite()), "rows of a spec cannot be assigned"),
    ],
)
def test_entries_that_do_not_fit_are_refused(make, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        make()
