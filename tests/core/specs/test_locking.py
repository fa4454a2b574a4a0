"""Locks of Composites."""

from __future__ import annotations

import copy
import gc
import pickle

import pytest
import torch

from steppe.errors import StateError
from steppe.specs import Composite, Unbounded


@pytest.fixture
def spec() -> Composite:
    return Composite({"a": Unbounded((2, 1)), ("n", "m", "b"): Unbounded((2, 1))}, shape=(2,)).lock_()


EDITS = {
    "set 'x'": lambda s: s.set("x", None),
    "set ('n', 'x')": lambda s: s.set(("n", "x"), None),
    "remove 'a'": lambda s: s.pop("a"),
    "remove ('n', 'm')": lambda s: s.__delitem__(("n", "m")),
    "update it": lambda s: s.update({"x": None}),
    "change its shape": lambda s: setattr(s, "batch_size", ()),
    "change its device": lambda s: setattr(s, "device", "cpu"),
    "change its names": lambda s: s.refine_names("x"),
    "clear its device": lambda s: s.clear_device_(),
}


@pytest.mark.parametrize("doing", EDITS)
def test_a_locked_spec_refuses_edits_and_says_how_to_mend(spec: Composite, doing: str) -> None:
    with pytest.raises(StateError) as caught:
        EDITS[doing](spec)
    assert str(caught.value) == (
        f"This Composite is locked: cannot {doing}. Unlock it with spec.unlock_(), or edit a copy: spec.clone()."
    )


def test_locks_reach_all_levels(spec: Composite) -> None:
    assert spec.is_locked
    assert spec["n", "m"].locked
    with pytest.raises(StateError, match="Unlock the spec that holds it"):
        spec["n", "m"]["x"] = Unbounded((2, 1))


def test_unlocking_a_part_of_a_locked_spec_is_refused(spec: Composite) -> None:
    with pytest.raises(StateError, match="part of a locked spec"):
        spec["n"].unlock_()
    spec.unlock_()
    assert not spec["n", "m"].is_locked
    spec["n", "m", "c"] = Unbounded((2, 1))


def test_a_spec_shared_with_a_locked_one_cannot_be_unlocked(spec: Composite) -> None:
    """A spec cannot be unlocked while another locked spec holds a part of it."""
    other = Composite({"shared": spec["n"]}, shape=(2,)).lock_()
    for whole in (spec, other):
        with pytest.raises(StateError, match="holds a Composite that is also part of a locked spec"):
            whole.unlock_()
        assert whole.is_locked
    assert spec["n"].is_locked
    Composite({"one": spec, "other": other}, shape=(2,)).lock_().unlock_()
    assert not any(part.is_locked for part in (spec, other, spec["n"], spec["n", "m"]))


def test_locks_of_one_level_take_none_for_all_levels(spec: Composite) -> None:
    assert not spec.unlock_(recurse=None)["n", "m"].is_locked
    assert spec.lock_(recurse=None)["n", "m"].is_locked


def test_a_holder_that_is_gone_holds_nothing(spec: Composite) -> None:
    part = spec["n"]
    spec.unlock_()
    Composite({"shared": part}, shape=(2,)).lock_()
    gc.collect()
    assert part.is_locked
    assert not part.unlock_().is_locked


def test_copies_are_unlocked_and_exact_copies_are_not(spec: Composite) -> None:
    for free in (spec.clone(), copy.copy(spec), spec.expand(3, 2)):
        assert not free.is_locked
        free["n", "x"] = None
    for exact in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):
        assert exact.is_locked
        with pytest.raises(StateError, match="part of a locked spec"):
            exact["n"].unlock_()
        assert not exact.unlock_()["n", "m"].is_locked


def test_a_lock_can_be_assigned_and_stay_on_one_level(spec: Composite) -> None:
    spec.is_locked = False
    assert not spec.is_locked
    spec.is_locked = True
    spec.unlock_(recurse=False)
    assert spec["n"].is_locked
    spec.unlock_().lock_(recurse=False)
    assert not spec["n"].is_locked


def test_stacks_lock_their_parts(spec: Composite) -> None:
    stacked = torch.stack([spec.clone(), Composite({"a": Unbounded((2, 7))}, shape=(2,))]).lock_()
    with pytest.raises(StateError, match="part of a locked spec"):
        stacked.specs[0].unlock_()
    with pytest.raises(StateError, match="StackedComposite is locked"):
        stacked["x"] = None


def test_an_unlocked_child_is_set_through_its_locked_parent():
    """After lock_(recurse=False), entries of nested specs are set through the parent."""
    spec = Composite(a=Composite(b=Unbounded((1,))), c=Unbounded((1,)))
    spec.lock_(recurse=False)

    spec["a", "b"] = Unbounded((2,))
    spec["a", "d", "e"] = Unbounded((3,))

    assert spec["a", "b"].shape == (2,)
    assert spec["a", "d", "e"].shape == (3,)
    for key in ("c", "f", ("f", "g")):
        with pytest.raises(StateError):
            spec[key] = Unbounded((2,))
    spec.lock_()
    with pytest.raises(StateError):
        spec["a", "b"] = Unbounded((3,))
