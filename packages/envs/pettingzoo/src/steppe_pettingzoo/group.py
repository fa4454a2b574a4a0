"""AgentGroup: agents whose data is stacked under one key."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.specs import Binary, Composite, Unbounded
from steppe.storage import build_td

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
        #: The arrays that the observations of a step are written into.
        self.rows = ObservationRows(self)

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


class ObservationRows:
    """Arrays for the observations of a group at one time step.

    They are written agent by agent, and copied into data.

    Attributes:
        views: for each agent, numpy views by key. An entry of one name is also listed under that name alone.
    """

    def __init__(self, group: AgentGroup) -> None:
        n = len(group.agents)
        self._alike, self._device, self._size = group.alike, group.device, torch.Size([n])
        if group.alike:
            fields = group.agents[0].fields
            self._arrays = [{key: np.zeros((n, *shape), dtype) for key, (shape, dtype) in fields.items()}]
        else:
            self._arrays = [
                {key: np.zeros(shape, dtype) for key, (shape, dtype) in agent.fields.items()} for agent in group.agents
            ]
        self._make_views()

    def _make_views(self) -> None:
        if self._alike:
            shared = self._arrays[0].items()
            self.views = [
                _with_plain_names({key: array[i, ...] for key, array in shared}) for i in range(self._size[0])
            ]
        else:
            self.views = [
                _with_plain_names({key: array[...] for key, array in arrays.items()}) for arrays in self._arrays
            ]

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "views"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._make_views()  # unpickled views would not share the memory of the arrays

    def clear(self) -> None:
        """Set all arrays to zero."""
        for arrays in self._arrays:
            for array in arrays.values():
                array[...] = 0

    def data(self, extra: dict[str, np.ndarray]) -> TensorDictBase:
        """Copy the arrays into a TensorDict ``[agents]``.

        ``extra`` has further entries ``[agents, ...]``.
        """
        more = {key: torch.from_numpy(value) for key, value in extra.items()}
        if self._alike:
            return _nested(self._arrays[0], more, self._size, self._device)
        parts = [
            _nested(arrays, {key: value[i] for key, value in more.items()}, torch.Size([]), self._device)
            for i, arrays in enumerate(self._arrays)
        ]
        return LazyStackedTensorDict.lazy_stack(parts, 0)


def _with_plain_names(views: dict[Key, np.ndarray]) -> dict[Any, np.ndarray]:
    return {**views, **{key[0]: view for key, view in views.items() if len(key) == 1}}


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
