"""AgentView reads the members of agents, and nothing of other policies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import Agent, Composite, Unbounded
from steppe.collectors import AgentDeclarations
from steppe_agents.agent_view import AgentView


class Network(torch.nn.Module):
    """A network of a learner, whose members have the names of an agent's for another reason."""

    history = 6

    def replay(self, tensordict: Any) -> Any:
        raise AssertionError("The replay buffer of a learner is no method of an agent.")

    initial_state = replay


class Counter(Network):
    """The same network, which declares a state."""

    agent_state_spec = Composite(n=Unbounded((2,)))

    def initial_state(self, tensordict: Any) -> Any:
        return TensorDict({"n": torch.full((*tensordict.batch_size, 2), 4.0)}, tensordict.batch_size)


def test_members_of_policies_that_are_no_agents_are_unread() -> None:
    view = AgentView(Network())
    assert (view.history, view.replay, view.begins_with_zeros) == (0, None, True)
    assert view.initial_state(TensorDict(batch_size=[3])).is_empty()
    assert AgentDeclarations.of(Network()).names == []


@pytest.mark.parametrize("name", ["agent_info_spec", "agent_info_default", "agent_state_spec"])
def test_one_declaration_makes_a_policy_an_agent(name: str) -> None:
    network = Network()
    setattr(network, name, Composite({}) if name.endswith("spec") else {"skill": 2})
    assert AgentView(network).history == 6
    assert AgentView(network).replay is not None


def test_members_of_agents_are_read_from_any_class() -> None:
    view = AgentView(Counter())
    assert not view.begins_with_zeros
    assert view.initial_state(TensorDict(batch_size=[3]))["n"].tolist() == [[4.0, 4.0]] * 3


def test_an_agent_without_members_has_the_defaults() -> None:
    view = AgentView(Agent())
    assert (view.history, view.begins_with_zeros) == (0, True)
    assert view.replay is not None
