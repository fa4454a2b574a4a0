"""AgentView: the members of the agent protocol of any policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase
from torch import nn

from steppe.collectors import AgentDeclarations
from steppe.specs import Composite
from steppe_agents.agent import Agent

__all__ = ["AgentView"]


class AgentView:
    """The members of the agent protocol of a policy, with the defaults of :class:`~steppe.Agent` where it has none.

    A policy is an agent if it derives from ``Agent``, or has one of ``agent_info_spec``, ``agent_info_default`` and
    ``agent_state_spec``. Members of other policies are never read, because their names may mean something else:
    ``replay`` of a network may be its replay buffer. ``AgentDeclarations`` reads the declarations, which can be sent to
    other processes; this class adds the methods.

    Args:
        policy: any policy, or None for random actions.

    Attributes:
        name: the class of the policy, for errors.
        info_spec, state_spec: specs of one row, empty if the policy declares none.
        initial_state: returns the initial state of rows ``[k]``.
        device: the GPU of the agent's parameters, on which it reads and returns data; None if they are on the CPU.
        begins_with_zeros: ``initial_state`` is the default, which returns zeros.
        replay: computes the entries of a replay; None if the policy has no such method.
        history: the number of previous steps that the policy reads; 0 for none.
    """

    def __init__(self, policy: object) -> None:
        declared = AgentDeclarations.of(policy)
        self.name = declared.policy_name
        self.info_spec: Composite = declared.info_spec or Composite({})
        self.state_spec: Composite = declared.state_spec or Composite({})
        declarations = (declared.info_spec, declared.info_default, declared.state_spec)
        agent = None if all(value is None for value in declarations) else policy
        begin: Any = getattr(agent, "initial_state", None)
        self.begins_with_zeros = not callable(begin) or getattr(begin, "__func__", None) is Agent.initial_state
        self.initial_state: Callable[[TensorDictBase], TensorDictBase] = begin
        if self.begins_with_zeros:
            self.initial_state = self._zeros
        parameter = next(agent.parameters(), None) if isinstance(agent, nn.Module) else None
        self.device = None if parameter is None or parameter.is_cpu or self.begins_with_zeros else parameter.device
        replay: Any = getattr(agent, "replay", None)
        self.replay: Callable[[TensorDictBase], TensorDictBase] | None = replay if callable(replay) else None
        self.history: int = declared.history if "history" in declared.names and declared.history else 0

    def _zeros(self, tensordict: TensorDictBase) -> TensorDictBase:
        zeros: TensorDictBase = self.state_spec.expand(*tensordict.batch_size, *self.state_spec.shape).zero()
        return zeros
