"""The union of specs, and the kinds that an environment has."""

from __future__ import annotations

import torch

from steppe.specs import SPEC_KINDS, Binary, Composite, StackedComposite, Unbounded, union
from steppe_testing import CountingEnv


def test_union_joins_groups_and_takes_the_last_leaves():
    """Groups of several specs are merged; leaves are those of the last spec."""
    first = Composite(a=Unbounded((2, 3)), group=Composite(x=Unbounded((2, 1)), shape=(2,)), shape=(2,))
    second = Composite(a=Binary(2, shape=(2, 2)), group=Composite(y=Binary(1, shape=(2, 1)), shape=(2,)), shape=(2,))

    both = union(first.lock_(), second)

    assert set(both.keys(True, True)) == {"a", ("group", "x"), ("group", "y")}
    assert both["a"] == second["a"]
    assert both["group", "x"] == first["group", "x"]
    assert both.shape == (2,)
    assert not both.is_locked


def test_groups_of_unequal_agents_are_joined():
    def agents(name):
        return torch.stack([Composite({name: Unbounded((size,))}) for size in (1, 2)])

    both = union(Composite(agents=agents("x")), Composite(agents=agents("y")))

    assert isinstance(agents("x"), StackedComposite)
    assert set(both.keys(True, True)) == {("agents", "x"), ("agents", "y")}
    assert both["agents"].shape == (2,)


def test_union_keeps_entries_in_their_rows_of_a_stack():
    def rows(*names):
        return StackedComposite(*(Composite({name: Unbounded((1,))}) for name in names))

    both = union(rows("x", "other"), rows("y", "y"))

    assert [set(row.keys()) for row in both.specs] == [{"x", "y"}, {"other", "y"}]


def test_an_environment_has_a_full_spec_of_each_kind():
    env = CountingEnv()

    assert all(isinstance(getattr(env, f"full_{kind}_spec"), Composite) for kind in SPEC_KINDS)
    assert len(SPEC_KINDS) == 5
