"""AgentState: the recurrent state that a policy declares."""

from __future__ import annotations

from tensordict import TensorDictBase

from steppe.errors import PolicyError, SpecError
from steppe.specs import Composite

__all__ = ["AgentState"]


class AgentState:
    """The recurrent state of a policy.

    The policy may be a ``steppe.Agent``, or any class with ``agent_state_spec``.

    Args:
        policy: the policy; None for random actions, which have no state.

    Attributes:
        spec: the spec of the state of one row.
        keys: the entries of the state; empty if the policy declares none.
    """

    def __init__(self, policy: object) -> None:
        self.policy = policy
        self.spec: Composite = getattr(policy, "agent_state_spec", None) or Composite({})
        self.keys = list(self.spec.keys(include_nested=True, leaves_only=True))

    def begin(self, root: TensorDictBase) -> None:
        """Write the initial state into the root of rows that begin an episode.

        Raises:
            SpecError: ``initial_state`` of the policy returns an entry with another shape or dtype than its spec.
        """
        if not self.keys:
            return
        make = getattr(self.policy, "initial_state", None)
        size = root.batch_size
        state = make(root) if callable(make) else self.spec.expand(*size).zero()
        for key in self.keys:
            leaf, value = self.spec[key], state.get(key, None)
            expected = (*size, *leaf.shape)
            if value is None or tuple(value.shape) != expected or value.dtype != leaf.dtype:
                returned = "nothing" if value is None else f"{tuple(value.shape)}, {value.dtype}"
                raise SpecError(
                    f"initial_state of {type(self.policy).__name__} must return {key!r} of shape {expected} and dtype "
                    f"{leaf.dtype}, as its agent_state_spec says, found {returned}."
                )
        root.set("agent_state", state.select(*self.keys))

    def next_state(self, acted: TensorDictBase) -> TensorDictBase | None:
        """Return the next state from the data that the policy wrote.

        Returns None if it declares no state.

        Raises:
            PolicyError: the policy did not write its next state.
        """
        if not self.keys:
            return None
        following = acted.get("next", None)
        state = None if following is None else following.get("agent_state", None)
        missing = [key for key in self.keys if state is None or state.get(key, None) is None]
        if missing or state is None:
            raise PolicyError(
                f"{type(self.policy).__name__} declares the state {self.keys}, but has not written "
                f"{[('next', 'agent_state', key) for key in missing]}."
            )
        next_state: TensorDictBase = state.select(*self.keys)
        return next_state
