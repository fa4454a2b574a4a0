"""AgentGroup: the agents of one group, and where their data is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .behavior import Behavior

__all__ = ["AgentGroup"]

_Array = np.ndarray[Any, Any]


class AgentGroup:
    """Agents of one behavior, whose data is stacked.

    Args:
        name: name of the group.
        behavior: their behavior.
        places: their places there, in the order of the group.
        one_hot: whether discrete actions are one-hot rows of all branches.

    Attributes:
        places: an index of arrays of the behavior ``[m, ...]``: the places, or all of them.
    """

    def __init__(self, name: str, behavior: Behavior, places: list[int], *, one_hot: bool) -> None:
        self.name, self.behavior, self.size, self.one_hot = name, behavior, len(places), one_hot
        self.places: Any = slice(None) if places == list(range(behavior.size)) else np.array(places, np.intp)
        self._rows = {place: row for row, place in enumerate(places)}
        self._sensors = [("observation", sensor) for sensor in behavior.sensors]

    def write_root(self, out: Mapping[tuple[str, ...], _Array]) -> None:
        """Write what a reset returns into ``{key relative to the group: [agents, ...]}``."""
        observed, places = self.behavior.observed, self.places
        for key, target in out.items():
            target[...] = observed[key][places]

    def write_step(self, out: Mapping[tuple[str, ...], _Array]) -> None:
        """Write the result of the last step; see :meth:`write_root`."""
        behavior, places = self.behavior, self.places
        values = {**behavior.observed, **behavior.stepped}
        for key, target in out.items():
            target[...] = values[key][places]
        for i, place in enumerate(behavior.over):
            row = self._rows.get(place)
            if row is not None:
                for key, last in zip(self._sensors, behavior.last, strict=True):
                    out[key][row] = last[i]

    @property
    def ended(self) -> _Array:
        """``[agents]`` bool, the agents that have ended and were not reset yet."""
        ended: _Array = self.behavior.ended[self.places]
        return ended

    def begin(self, agents: _Array) -> None:
        """Begin the episodes of some agents that have ended, ``[agents]`` bool."""
        self.behavior.ended[self.places] &= ~agents

    def send(self, actions: Mapping[Any, _Array], continuous: _Array, discrete: _Array) -> None:
        """Write actions of k steps for the game.

        Args:
            actions: ``{(group, name): [k, agents, *shape]}``.
            continuous: ``[k, m, n]`` float32, for all agents of the behavior.
            discrete: ``[k, m, branches]`` int32; -1 for one-hot rows that choose no value of a branch, or several.
        """
        if self.behavior.continuous:
            continuous[:, self.places] = actions[self.name, "continuous_action"]
        if not self.behavior.branches:
            return
        chosen = actions[self.name, "discrete_action"]
        if self.one_hot:
            branches = np.split(chosen, np.cumsum(self.behavior.branches)[:-1], -1)
            chosen = np.stack([np.where(each.sum(-1) == 1, each.argmax(-1), -1) for each in branches], -1)
        discrete[:, self.places] = chosen
