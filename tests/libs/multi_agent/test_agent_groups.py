"""Groups of agents: ready-made ones, those of a user, and the errors of those that do not fit."""

from __future__ import annotations

import pytest

import steppe
from steppe.errors import SpecError
from steppe_multi_agent import MarlGroupMapType, check_marl_grouping, group_agents
from steppe_testing import CountingEnv


class PairEnv(CountingEnv):
    """An environment that names groups of agents."""

    def __init__(self, names=("wolf_0", "dog_0")):
        super().__init__()
        self.group_map = group_agents(None, names)


def test_the_core_finds_the_class_that_users_import():
    assert steppe.MarlGroupMapType is steppe.envs.MarlGroupMapType is MarlGroupMapType


def test_ready_made_groups():
    agents = ["a", "b"]

    assert MarlGroupMapType.ALL_IN_ONE_GROUP.get_group_map(agents) == {"agents": agents}
    assert MarlGroupMapType.ONE_GROUP_PER_AGENT.get_group_map(agents) == {"a": ["a"], "b": ["b"]}


@pytest.mark.parametrize("agents", [[], ["a", "a"]])
def test_agents_need_names_that_differ(agents):
    with pytest.raises(SpecError, match="names that differ"):
        MarlGroupMapType.ALL_IN_ONE_GROUP.get_group_map(agents)


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ({}, "no groups"),
        ({"one": ["a", "b"], "two": []}, "without agents: \\['two'\\]"),
        ({"one": ["a"]}, "without a group: \\['b'\\]"),
        ({"one": ["a", "b", "c"]}, "unknown agent 'c'"),
        ({"one": ["a", "b"], "two": ["a"]}, "'a' is in the groups 'one' and 'two'"),
    ],
)
def test_a_grouping_that_does_not_fit_says_how(groups, text):
    with pytest.raises(SpecError, match=text):
        check_marl_grouping(groups, ["a", "b"])


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["wolf_0", "sheep_0", "wolf_1"], {"wolf": ["wolf_0", "wolf_1"], "sheep": ["sheep_0"]}),
        (["agent_0", "agent_1"], {"agents": ["agent_0", "agent_1"]}),
        (["agent 0", "agent 1"], {"agents": ["agent 0", "agent 1"]}),
        (["wolf_0", "shepherd", "wolf_7"], {"wolf": ["wolf_0", "wolf_7"], "shepherd": ["shepherd"]}),
        (["agent"], {"agents": ["agent"]}),
    ],
)
def test_agents_are_grouped_by_what_they_are_called(names, groups):
    assert group_agents(None, names) == groups


def test_groups_that_a_user_names_are_checked():
    assert group_agents(MarlGroupMapType.ONE_GROUP_PER_AGENT, ["a", "b"]) == {"a": ["a"], "b": ["b"]}
    with pytest.raises(SpecError, match="agents without a group: \\['b'\\]"):
        group_agents({"one": ["a"]}, ["a", "b"])


def test_a_grouping_that_fits_passes():
    check_marl_grouping({"one": ["a"], "two": ["b"]}, ["a", "b"])


@pytest.mark.parametrize("kind", [steppe.SerialEnv, steppe.ParallelEnv])
def test_a_batch_has_the_groups_of_its_environments(kind):
    batch = kind(2, PairEnv)

    assert batch.group_map == PairEnv().group_map
    assert steppe.TransformedEnv(batch).group_map["wolf"] == ["wolf_0"]
    batch.close()


def test_a_batch_of_unequal_groups_lists_them():
    batch = steppe.SerialEnv(2, [PairEnv, lambda: PairEnv(names=("sheep_0", "sheep_1"))])

    assert list(batch.group_map) == [{"wolf": ["wolf_0"], "dog": ["dog_0"]}, {"sheep": ["sheep_0", "sheep_1"]}]
