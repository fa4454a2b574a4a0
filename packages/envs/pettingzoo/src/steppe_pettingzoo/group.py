"""AgentGroup: agents whose data is stacked under one key."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.specs import Binary, Categorical, Composite, OneHot, Unbounded
from steppe.storage import build_td

from .agent import Agent, Key

__all__ = ["AgentGroup"]

_FLAGS = ("done", "terminated", "truncated")


class AgentGroup:
    """The agents of one group, stacked in dimension 0; lazily where what they observe differs.

    Args:
        name: the key.
        agents: its agents.
        device: of specs and data.
    """

    def __init__(self, name: str, agents: list[Agent], device: Any) -> None:
        self.name, self.agents, self.device = name, agents, device
        size = (len(agents),)
        self.observation_spec: Any = torch.stack([agent.observation_spec for agent in agents], 0)  # type: ignore[misc]
        self.action_spec: Any = torch.stack([agent.action_spec for agent in agents], 0)  # type: ignore[misc]
        reward = Unbounded(shape=(*size, 1), dtype=torch.float32, device=device)
        self.reward_spec = Composite({"reward": reward}, shape=size, device=device)
        flag = Binary(shape=(*size, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite({name: flag.clone() for name in _FLAGS}, shape=size, device=device)
        self.alike = all(agent.fields == agents[0].fields for agent in agents[1:])
        masked = self.alike and all(agent.has_action_mask for agent in agents)
        #: The spec of one agent's action, where all agents of the group choose among as many, and have masks.
        self.choice: Categorical | OneHot | None = agents[0].action_spec["action"] if masked else None
        self._numbers = all(agent.choices for agent in agents)
        #: Where the values of a step are written.
        self.rows = Rows(self)

    def actions(self, tensordict: TensorDictBase) -> list[Any]:
        """The action of each agent, a tensor on the CPU or a number, from data with the group."""
        values = tensordict.get(self.name)
        if isinstance(values, LazyStackedTensorDict):
            found = [row.get("action") for row in values.tensordicts]
        else:
            stacked = values.get("action")
            if self._numbers and stacked.dtype is torch.int64 and stacked.ndim == 1:
                numbers: list[Any] = stacked.tolist()
                return numbers
            found = list(stacked.unbind(0))
        elsewhere = self.device is not None and self.device.type != "cpu"
        return [action.cpu() for action in found] if elsewhere else found

    def draw(self, mask: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
        """Random actions ``[agents, ...]`` that a mask ``[agents, n]`` allows, any where it allows none."""
        assert self.choice is not None
        mask = mask.cpu()
        weights = (mask | ~mask.any(-1, keepdim=True)).float()
        action = torch.multinomial(weights, 1, generator=generator)[:, 0]
        if isinstance(self.choice, OneHot):
            action = torch.nn.functional.one_hot(action, weights.shape[-1])
        return action.to(device=self.device, dtype=self.choice.dtype)


class Rows:
    """What the agents of a group observe at one time, as arrays that are written row by row, and copied into data.

    Attributes:
        of: for each agent its numpy views by key; an entry of one name has that name as its key too.
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
        self._view()

    def _view(self) -> None:
        if self._alike:
            shared = self._arrays[0].items()
            self.of = [_views({key: array[i, ...] for key, array in shared}) for i in range(self._size[0])]
        else:
            self.of = [_views({key: array[...] for key, array in arrays.items()}) for arrays in self._arrays]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "of"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._view()  # copies of views would be arrays of their own

    def clear(self) -> None:
        """Begin anew, with zeros."""
        for arrays in self._arrays:
            for array in arrays.values():
                array[...] = 0

    def data(self, extra: dict[str, np.ndarray[Any, Any]]) -> TensorDictBase:
        """A TensorDict ``[agents]`` of copies of all that was written, with further entries ``[agents, ...]``."""
        more = {key: torch.from_numpy(value) for key, value in extra.items()}
        if self._alike:
            return _nested(self._arrays[0], more, self._size, self._device)
        parts = [
            _nested(arrays, {key: value[i] for key, value in more.items()}, torch.Size([]), self._device)
            for i, arrays in enumerate(self._arrays)
        ]
        return LazyStackedTensorDict.lazy_stack(parts, 0)


def _views(views: dict[Key, Any]) -> dict[Any, Any]:
    return {**views, **{key[0]: view for key, view in views.items() if len(key) == 1}}


def _nested(
    arrays: dict[Key, np.ndarray[Any, Any]], more: dict[str, torch.Tensor], size: torch.Size, device: Any
) -> TensorDict:
    tree: dict[str, Any] = dict(more)
    for key, array in arrays.items():
        level = tree
        for name in key[:-1]:
            level = level.setdefault(name, {})
        level[key[-1]] = torch.from_numpy(array.copy())
    if device is None or device.type == "cpu":
        return _built(tree, size, device)
    return _built(tree, size, None).to(device)


def _built(tree: dict[str, Any], size: torch.Size, device: torch.device | None) -> TensorDict:
    level = {name: _built(value, size, device) if isinstance(value, dict) else value for name, value in tree.items()}
    return build_td(level, size, device)
