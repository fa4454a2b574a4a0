"""Policies that declare infos or a recurrent state: their declarations, and the hook for steppe-agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from tensordict import TensorDictBase

from steppe.envs import DoneGroup, EnvBase
from steppe.errors import ClassNotFound
from steppe.registry import find_class
from steppe.specs import Composite

__all__ = ["AgentDeclarations", "AgentStepper", "agent_stepper"]


@dataclass(frozen=True)
class AgentDeclarations:
    """The declarations of a policy, which can be sent to other processes without the policy.

    Attributes:
        policy_name: the class of the policy, for errors.
        info_spec: the policy's ``agent_info_spec``, or None.
        info_default: the policy's ``agent_info_default``, or None.
        state_spec: the policy's ``agent_state_spec``, or None.
        history: how many previous steps the policy reads, or None.
        methods: the names of the policy's public methods.
    """

    policy_name: str
    info_spec: Composite | None
    info_default: TensorDictBase | Mapping[str, object] | None
    state_spec: Composite | None
    history: int | None
    methods: frozenset[str]

    @classmethod
    def of(cls, policy: object) -> AgentDeclarations:
        """Read the declarations of a policy; None (random actions) declares nothing."""
        info_spec, info_default, state_spec = (
            getattr(policy, f"agent_{name}", None) for name in ("info_spec", "info_default", "state_spec")
        )
        # A policy with none of these is no agent: its ``history`` may be anything.
        is_agent = any(value is not None for value in (info_spec, info_default, state_spec))
        history = getattr(policy, "history", None) if is_agent else None
        methods = frozenset(name for name in dir(type(policy)) if not name.startswith("_"))
        return cls(type(policy).__name__, info_spec, info_default, state_spec, history, methods)

    @property
    def names(self) -> list[str]:
        """The attributes with which the policy declares infos or a state; empty for an ordinary policy."""
        declared = {
            "agent_info_spec": self.info_spec is not None and not self.info_spec.is_empty(),
            "agent_info_default": self.info_default is not None,
            "agent_state_spec": self.state_spec is not None and not self.state_spec.is_empty(),
            "history": isinstance(self.history, int) and self.history > 0,
        }
        return [name for name, is_declared in declared.items() if is_declared]


class AgentStepper(Protocol):
    """Step a policy that declares infos or a state: ``steppe_agents.AgentSteps``, which documents each method.

    Attributes:
        infos: the ``agent_info`` of all rows ``[*B]``, or None.
    """

    infos: TensorDictBase | None

    def begin(self, root: TensorDictBase) -> TensorDictBase:
        """Add infos and initial states to a root after a reset."""

    def step(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase, random: bool
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Call the policy and step the environment; returns the data of the step and the next root."""


def agent_stepper(
    name: str, env: EnvBase, policy: object, groups: list[DoneGroup], *, keeps_states: bool
) -> AgentStepper | None:
    """Return the stepper of the policy in batches; None for an ordinary policy, which the collector calls itself.

    Args:
        name: of the collector, for errors.
        env: one environment, or a batch.
        policy: the policy that acts; None for random actions.
        groups: the levels of the data that have done entries, the root first.
        keeps_states: write the state before and after each step into the batch.

    Raises:
        ClassNotFound: the policy declares infos or a state, and steppe-agents is not installed.
    """
    declared = AgentDeclarations.of(policy).names
    if not declared:
        return None
    try:
        make = find_class("collector", "AgentSteps")
    except ClassNotFound as error:
        raise ClassNotFound(
            f"{name}: the policy {type(policy).__name__} declares {' and '.join(declared)}, which the package "
            f"steppe-agents is needed for. {error}"
        ) from None
    stepper: AgentStepper = make(env, policy, groups, keeps_states=keeps_states)
    return stepper
