"""Edits of specs that hold stacks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import (
    Binary,
    Bounded,
    Composite,
    Stacked,
    StackedComposite,
    Unbounded,
)


def two_kinds() -> StackedComposite:
    """Rows whose entry x is the first one's alone, as is one of the group n."""
    first = Composite(
        {"a": Bounded(0, 1, (3, 2)), "x": Unbounded((3,)), ("n", "m"): Unbounded((3,)), ("n", "e"): Binary(3)},
        shape=(3,),
    )
    second = Composite({"a": Bounded(0, 1, (3, 4)), ("n", "m"): Unbounded((3,)), "y": Unbounded((3,))}, shape=(3,))
    return torch.stack([first, second])


UPDATES: dict[str, Any] = {
    "a leaf": lambda: {"a": Unbounded((2, 3))},
    "a group for a leaf": lambda: {"a": {"z": Unbounded((2, 3))}},
    "a leaf for a group": lambda: {"n": Unbounded((2, 3))},
    "an empty group": lambda: {"k": Composite(shape=(2, 3))},
    "an entry of a group": lambda: {("n", "k"): Unbounded((2, 3))},
    "entries of a group": lambda: Composite(n=Composite(k=Unbounded((2, 3)), shape=(2, 3)), shape=(2, 3)),
    "nothing": lambda: {"n": None, "z": None},
    "a stack": lambda: torch.stack([Composite({f"q{i}": Unbounded((3, i + 1))}, shape=(3,)) for i in range(2)]),
    "a stack in a group": lambda: {
        "n": torch.stack([Composite({f"q{i}": Unbounded((3, i + 1))}, shape=(3,)) for i in range(2)])
    },
    "a stack along the other dimension": lambda: torch.stack(
        [Composite(q=Unbounded((2, i + 1)), shape=(2,)) for i in range(3)], 1
    ),
}


NEW_KEYS: dict[str, set[Any]] = {
    "a group for a leaf": {("a", "z")},
    "an empty group": {"k"},
    "an entry of a group": {("n", "k"), ("n", "m"), ("n", "e")},
    "a stack": {"q0", "q1"},
    "a stack in a group": {("n", "q0"), ("n", "q1"), ("n", "m")},
    "a stack along the other dimension": {"q"},
}


@pytest.mark.parametrize("name", UPDATES)
def test_updating_a_stack_updates_its_parts(name) -> None:
    spec, parts = two_kinds(), two_kinds().specs
    entries = UPDATES[name]()
    whole = entries if isinstance(entries, Composite) else Composite(entries, shape=(2, 3))
    for part, row in zip(parts, whole.unbind(0), strict=True):
        part.update(row)
    spec.update(UPDATES[name]())
    assert list(spec.specs) == list(parts)
    assert spec.clone() == spec
    assert NEW_KEYS.get(name, set()) <= {*spec.specs[0].keys(True), *spec.specs[1].keys(True)}


def test_an_edit_that_one_part_refuses_reaches_none() -> None:
    spec = two_kinds()
    for key in (("x", "deep"), ("y", "deep"), ("n", "e", "deep")):
        with pytest.raises(SpecError, match="not a Composite"):
            spec[key] = Unbounded((2, 3))
        with pytest.raises(SpecError):
            spec.update({"fresh": Unbounded((2, 3)), key: Unbounded((3, 3))})
    assert spec == two_kinds()
    assert len(spec.keys(True)) == 3


def test_parts_that_were_one_spec_are_edited_apart() -> None:
    agent = Composite(n=Composite(a=Unbounded((2,)), b=Unbounded((2,)), shape=(2,)), shape=(2,))
    spec = torch.stack([agent, agent, Composite(n=agent["n"], own=Unbounded((2,)), shape=(2,))])
    spec["wide"] = torch.stack([Bounded(0, kind + 1, (2,)) for kind in range(3)])
    assert [part["wide"].high[0].item() for part in spec.specs] == [1, 2, 3]
    assert spec.pop(("n", "a")) == Unbounded((3, 2))
    del spec["n", "b"]
    assert [list(part["n"].keys()) for part in spec.specs] == [[], [], []]
    assert list(agent.keys(True)) == ["n", "wide"]


@pytest.mark.parametrize("equal", [True, False])
def test_edits_of_a_group_in_a_stack_reach_every_part(equal) -> None:
    groups = [Composite(a=Unbounded((2,)), shape=(2,)) for _ in range(2)]
    if not equal:
        groups[1]["a"] = Bounded(0, 1, (2,))
    spec = torch.stack([Composite(n=group, own=Bounded(0, i + 1, (2,)), shape=(2,)) for i, group in enumerate(groups)])
    spec["n"]["new"] = Unbounded((2, 2))
    del spec["n"]["a"]
    assert [list(part["n"].keys()) for part in spec.specs] == [["new"], ["new"]]
    assert spec["n"] == Composite(new=Unbounded((2, 2)), shape=(2, 2)) == spec["n"]


def test_a_stack_equals_the_spec_it_could_be_merged_into() -> None:
    """After unequal entries are deleted, a stack equals the plain spec."""
    spec = torch.stack([Composite(a=Unbounded(()), b=Bounded(0, i + 1, ())) for i in range(2)])
    assert spec != Composite(a=Unbounded((2,)), shape=(2,))
    del spec["b"]
    assert type(spec) is StackedComposite
    assert spec == spec.clone() == Composite(a=Unbounded((2,)), shape=(2,)) == spec
    assert Stacked(Unbounded(()), Unbounded(())) == Unbounded((2,)) == Stacked(Unbounded(()), Unbounded(()))
    assert Stacked(Unbounded(()), Bounded(0, 1, ())) != Unbounded((2,))


def test_names_of_dimensions_stay_with_a_stack() -> None:
    spec = two_kinds()
    spec.names = ["agent", "time"]
    assert spec.clone().names == spec["n"].names == spec[:, 1:].names == ["agent", "time"]
    assert spec.unsqueeze(0).names == [None, "agent", "time"]
    assert spec.expand(4, 2, 3).names == [None, "agent", "time"]
    assert spec[1].names == spec[0]["n"].names == ["time"]
    assert spec.rand((5,)).names == [None, "agent", "time"]
    assert spec.refine_names(..., "time").names == ["agent", "time"]
