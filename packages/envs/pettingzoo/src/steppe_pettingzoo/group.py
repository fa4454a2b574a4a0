"""AgentGroup: agents whose data is stacked under one key."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.specs import Binary, Composite, Unbounded

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
        self.observation_spec: Any = torch.stack([agent.observation_spec for agent in agents], 0)
        self.action_spec: Any = torch.stack([agent.action_spec for agent in agents], 0)
        reward = Unbounded(shape=(*size, 1), dtype=torch.float32, device=device)
        self.reward_spec = Composite({"reward": reward}, shape=size, device=device)
        flag = Binary(shape=(*size, 1), dtype=torch.bool, device=device)
        self.done_spec = Composite({name: flag.clone() for name in _FLAGS}, shape=size, device=device)
        self.alike = all(agent.fields == agents[0].fields for agent in agents[1:])

    def new_rows(self) -> Rows:
        """Zeros for all that the agents observe, to be written into."""
        return Rows(self)


class Rows:
    """What the agents of a group observe at one time, as arrays that are written row by row.

    Attributes:
        of: for each agent its numpy views by key; an entry of one name has that name as its key too.
    """

    def __init__(self, group: AgentGroup) -> None:
        self._group = group
        n = len(group.agents)
        if group.alike:
            fields = group.agents[0].fields
            self._arrays = [{key: np.zeros((n, *shape), dtype) for key, (shape, dtype) in fields.items()}]
            self.of = [_views({key: array[i, ...] for key, array in self._arrays[0].items()}) for i in range(n)]
        else:
            self._arrays = [
                {key: np.zeros(shape, dtype) for key, (shape, dtype) in agent.fields.items()} for agent in group.agents
            ]
            self.of = [_views({key: array[...] for key, array in arrays.items()}) for arrays in self._arrays]
        self._n = n

    def data(self, extra: dict[str, np.ndarray[Any, Any]]) -> TensorDictBase:
        """A TensorDict ``[agents]`` of all that was written, with further entries ``[agents, ...]``."""
        size = [self._n]
        device = self._group.device
        more = {key: torch.from_numpy(value) for key, value in extra.items()}
        if self._group.alike:
            return _nested(self._arrays[0], more, size, device)
        parts = [
            _nested(arrays, {key: value[i] for key, value in more.items()}, [], device)
            for i, arrays in enumerate(self._arrays)
        ]
        return LazyStackedTensorDict.lazy_stack(parts, 0)


def _views(views: dict[Key, Any]) -> dict[Any, Any]:
    return {**views, **{key[0]: view for key, view in views.items() if len(key) == 1}}


def _nested(
    arrays: dict[Key, np.ndarray[Any, Any]], more: dict[str, torch.Tensor], size: list[int], device: Any
) -> TensorDict:
    data = TensorDict(dict(more), batch_size=size, device=device)
    for key, array in arrays.items():
        data.set(key if len(key) > 1 else key[0], torch.from_numpy(array))
    return data
