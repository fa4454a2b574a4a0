"""AgentState: the recurrent state that a policy declares."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import PolicyError, SpecError
from steppe.specs import CPU, torch_to_numpy_dtype_dict
from steppe.storage import build_td, clear_rows, find_entry, level_at
from steppe_agents.agent_view import AgentView

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
        self._agent = agent = AgentView(policy)
        self.spec = agent.state_spec
        self.keys = list(self.spec.keys(include_nested=True, leaves_only=True))
        self._names = set(self.keys)
        self._is_flat = all(isinstance(key, str) for key in self.keys)

    def begin(self, root: TensorDictBase) -> None:
        """Write the initial state into the root of rows that begin an episode.

        Raises:
            SpecError: ``initial_state`` of the policy returns an entry with another shape or dtype than its spec.
        """
        if not self.keys:
            return
        size = root.batch_size
        device = self._agent.device
        state = self._agent.initial_state(root if device is None else root.to(device))
        for key in self.keys:
            leaf, value = self.spec[key], state.get(key, None)
            expected = (*size, *leaf.shape)
            if value is None or tuple(value.shape) != expected or value.dtype != leaf.dtype:
                returned = "nothing" if value is None else f"{tuple(value.shape)}, {value.dtype}"
                raise SpecError(
                    f"initial_state of {self._agent.name} must return {key!r} of shape {expected} and dtype "
                    f"{leaf.dtype}, as its agent_state_spec says, found {returned}."
                )
        state = state.select(*self.keys)
        root.set("agent_state", state if device is None else state.to(root.device or CPU))

    def begun(self, root: TensorDictBase, state: TensorDictBase, at: list[int]) -> TensorDictBase:
        """Return a copy of the states of all rows, in which some rows begin an episode.

        Args:
            root: the roots ``[n]`` of all rows.
            state: their states.
            at: the rows that begin.
        """
        if self._agent.begins_with_zeros:
            level = {key: _zeroed(find_entry(state, key), at) for key in self.keys}
        else:
            index = torch.tensor(at, dtype=torch.int64, device=CPU)
            rows = root[index]
            self.begin(rows)
            fresh = rows.get("agent_state")
            level = {key: find_entry(state, key).index_copy(0, index, fresh.get(key)) for key in self.keys}
        return self._built(level, state.batch_size)

    def _built(self, level: dict[Any, Any], size: torch.Size) -> TensorDictBase:
        if self._is_flat:
            return build_td(level, size)
        made = TensorDict(batch_size=size)
        for key, value in level.items():
            made.set(key, value)
        return made

    def next_state(self, acted: TensorDictBase) -> TensorDictBase | None:
        """Return the next state from the data that the policy wrote.

        Returns None if it declares no state.

        Raises:
            PolicyError: the policy did not write its next state.
        """
        if not self.keys:
            return None
        level = level_at(acted, ("next", "agent_state"))
        if self._is_flat and level is not None and level.keys() == self._names:  # each step, so without TensorDicts
            return build_td(level.copy(), acted.batch_size)
        following = acted.get("next", None)
        state = None if following is None else following.get("agent_state", None)
        missing = [key for key in self.keys if state is None or state.get(key, None) is None]
        if missing or state is None:
            raise PolicyError(
                f"{self._agent.name} declares the state {self.keys}, but has not written "
                f"{[('next', 'agent_state', key) for key in missing]}."
            )
        next_state: TensorDictBase = state.select(*self.keys)
        return next_state


def _zeroed(value: torch.Tensor, at: list[int]) -> torch.Tensor:
    """Return a copy of a value ``[n, ...]`` with zeros in some rows."""
    if value.dtype not in torch_to_numpy_dtype_dict:
        return value.index_fill(0, torch.tensor(at, dtype=torch.int64, device=CPU), 0)
    array = value.detach().numpy().copy()  # numpy takes half the time
    clear_rows(array, at)
    return torch.from_numpy(array)
