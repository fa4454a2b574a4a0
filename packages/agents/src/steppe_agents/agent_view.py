"""AgentView: the members of the agent protocol of any policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase

from steppe.collectors import AgentDeclarations
from steppe.specs import Composite
from steppe_agents.agent import Agent

__all__ = ["AgentView"]


class AgentView:
    """The members of the agent protocol of a policy, with the defaults of :class:`~steppe.Agent` where it has none.

    Policies need not derive from ``Agent``, and ordinary modules have none of its members. This class is the one place
    that looks for them.

    Args:
        policy: any policy, or None for random actions.

    Attributes:
        name: the class of the policy, for errors.
        info_spec, state_spec: specs of one row, empty if the policy declares none.
        initial_state: returns the initial state of rows ``[k]``.
        begins_with_zeros: ``initial_state`` is the default, which returns zeros.
        replay: computes the entries of a replay; None if the policy has no such method.
        history: the number of previous steps that the policy reads; 0 for none.
    """

    def __init__(self, policy: object) -> None:
        declared = AgentDeclarations.of(policy)
        self.name = declared.policy_name
        self.info_spec: Composite = declared.info_spec or Composite({})
        self.state_spec: Composite = declared.state_spec or Composite({})
        begin: Any = getattr(policy, "initial_state", None)
        self.begins_with_zeros = not callable(begin) or getattr(begin, "__func__", None) is Agent.initial_state
        self.initial_state: Callable[[TensorDictBase], TensorDictBase] = begin
        if self.begins_with_zeros:
            self.initial_state = self._zeros
        replay: Any = getattr(policy, "replay", None)
        self.replay: Callable[[TensorDictBase], TensorDictBase] | None = replay if callable(replay) else None
        self.history: int = declared.history if "history" in declared.names and declared.history else 0

    def _zeros(self, tensordict: TensorDictBase) -> TensorDictBase:
        zeros: TensorDictBase = self.state_spec.expand(*tensordict.batch_size, *self.state_spec.shape).zero()
        return zeros
