"""AgentGroup: agents whose data is stacked under one key."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.specs import Binary, Composite, Unbounded
from steppe.storage import build_td
from steppe_multi_agent import AgentRows

from .agent import Agent, Key

__all__ = ["AgentGroup"]

_FLAGS = ("done", "terminated", "truncated")


class AgentGroup:
    """The agents of one group, stacked in dimension 0.

    They are stacked lazily if their observations differ.

    Args:
        name: the key of the group.
        agents: its agents.
        device: device of specs and data.
    """

    def __init__(self, name: str, agents: list[Agent], device: torch.device | None) -> None:
        self.name, self.agents, self.device = name, agents, device
        size = (len(agents),)
        self.observation_spec: Any = torch.stack([agent.observation_spec for agent in agents], 0)  # type: ignore[misc]
        self.action_spec: Any = torch.stack([agent.action_spec for agent in agents], 0)  # type: ignore[misc]
        reward = Unbounded(shape=(*size, 1), dtype=torch.float32, device=device)
        self.reward_spec = Composite({"reward": reward}, shape=size, device=device)
        flag = Binary(shape=(*size, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite({name: flag.clone() for name in _FLAGS}, shape=size, device=device)
        self.alike = all(agent.fields == agents[0].fields for agent in agents[1:])
        #: Whether the library provides an action mask for at least one agent.
        self.has_action_masks = any(agent.has_action_mask for agent in agents)
        self._are_integers = all(agent.choices for agent in agents)
        #: The memory of steps on TensorDicts.
        self.memory = GroupMemory(self)

    def actions(self, tensordict: TensorDictBase) -> list[Any]:
        """Return the action of each agent from data that contains the group.

        Each action is a tensor on the CPU or an integer.
        """
        values = tensordict.get(self.name)
        if isinstance(values, LazyStackedTensorDict):
            actions = [row.get("action") for row in values.tensordicts]
        else:
            stacked = values.get("action")
            if self._are_integers and stacked.dtype is torch.int64 and stacked.ndim == 1:
                indices: list[Any] = stacked.tolist()
                return indices
            actions = list(stacked.unbind(0))
        on_device = self.device is not None and self.device.type != "cpu"
        return [action.cpu() for action in actions] if on_device else actions

    def row_actions(self, decoded: Any) -> list[Any]:
        """Return the action of each agent from the decoded actions of ``step_into``, as :meth:`actions` does."""
        if not isinstance(decoded, dict):  # the only action of the environment
            return self._of_agents(decoded)
        value = decoded.get((self.name, "action"))
        if value is not None:
            return self._of_agents(value)
        prefix = (self.name, "action")
        parts: Any = {
            key[2:]: torch.as_tensor(value, device="cpu") for key, value in decoded.items() if key[:2] == prefix
        }
        stacked = TensorDict(parts, self.action_spec.shape)
        return list(stacked.unbind(0))

    def _of_agents(self, value: Any) -> list[Any]:
        if self._are_integers:
            return [value] if isinstance(value, int) else value.tolist()
        return list(torch.as_tensor(value, device="cpu").reshape(self.action_spec["action"].shape).unbind(0))


class GroupMemory:
    """Memory for the data of a group at one time step, which is copied into TensorDicts.

    Args:
        group: the group.

    Attributes:
        rows: views of the memory.
    """

    def __init__(self, group: AgentGroup) -> None:
        n = len(group.agents)
        self._names = [agent.name for agent in group.agents]
        self._alike, self._device, self._size = group.alike, group.device, torch.Size([n])
        fields = [group.agents[0].fields] if group.alike else [agent.fields for agent in group.agents]
        size = (n,) if group.alike else ()
        self._arrays = [
            {key: np.zeros((*size, *shape), dtype) for key, (shape, dtype) in parts.items()} for parts in fields
        ]
        self._shared: dict[Key, Any] = {(name,): np.zeros((n, 1), bool) for name in _FLAGS}
        self._shared[("reward",)] = np.zeros((n, 1), np.float32)
        self._make_rows()

    def _make_rows(self) -> None:
        if self._alike:
            self.rows = AgentRows(self._names, {**self._arrays[0], **self._shared})
        else:
            self.rows = AgentRows(self._names, self._arrays, self._shared)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "rows"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._make_rows()  # unpickled views would not share the memory of the arrays

    def data(self, *, stepped: bool) -> TensorDictBase:
        """Copy the memory into a TensorDict ``[agents]``, with the rewards if the data is that of a step."""
        names = ["reward", *_FLAGS] if stepped else _FLAGS
        more = {name: torch.from_numpy(self._shared[(name,)].copy()) for name in names}
        if self._alike:
            return _nested(self._arrays[0], more, self._size, self._device)
        parts = [
            _nested(arrays, {key: value[i] for key, value in more.items()}, torch.Size([]), self._device)
            for i, arrays in enumerate(self._arrays)
        ]
        return LazyStackedTensorDict.lazy_stack(parts, 0)


def _nested(
    arrays: dict[Key, np.ndarray], more: dict[str, torch.Tensor], size: torch.Size, device: torch.device | None
) -> TensorDict:
    tree: dict[str, Any] = dict(more)
    for key, array in arrays.items():
        level = tree
        for name in key[:-1]:
            level = level.setdefault(name, {})
        level[key[-1]] = torch.from_numpy(array.copy())
    if device is None or device.type == "cpu":
        return _build(tree, size, device)
    return _build(tree, size, None).to(device)


def _build(tree: dict[str, Any], size: torch.Size, device: torch.device | None) -> TensorDict:
    level = {name: _build(value, size, device) if isinstance(value, dict) else value for name, value in tree.items()}
    return build_td(level, size, device)
