"""Behavior: the agents of one behavior of a Unity game, and their decisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.errors import NotSupported

__all__ = ["Behavior"]


class Behavior:
    """The agents of one behavior.

    Each agent has a place, its row in the data. An agent whose episode has ended may come back under another number;
    it then takes the place of one that has ended.

    Args:
        name: name of the behavior in Unity.
        spec: its ``BehaviorSpec``.
        numbers: Unity's numbers of its agents.

    Attributes:
        observations: the last observation of each agent: ``{name: [m, *shape]}`` float32.
        deciding: ``[m]`` bool, which agents decide next.
        masks: ``[m, n]`` bool, the allowed values of all discrete branches, one after the other.
    """

    def __init__(self, name: str, spec: Any, numbers: list[int]) -> None:
        self.name, self.spec = name, spec
        self.places = {number: place for place, number in enumerate(numbers)}
        m = len(numbers)
        self.names = [each.name or f"observation_{i}" for i, each in enumerate(spec.observation_specs)]
        self.branches = tuple(int(n) for n in spec.action_spec.discrete_branches)
        self.continuous = int(spec.action_spec.continuous_size)
        self.observations = {
            key: np.zeros((m, *each.shape), np.float32)
            for key, each in zip(self.names, spec.observation_specs, strict=True)
        }
        self.deciding = np.zeros(m, bool)
        self.masks = np.ones((m, sum(self.branches)), bool)
        self.ended = np.zeros(m, bool)
        #: The numbers of the agents that decide, in the order in which Unity takes their actions.
        self.order: list[int] = []

    def restart(self, numbers: list[int]) -> None:
        """Take the agents of a game that has been started again.

        Args:
            numbers: Unity's numbers of its agents, as many as before.
        """
        self.places = {number: place for place, number in enumerate(numbers)}
        self.ended[...] = False

    def read(self, decisions: Any, terminals: Any, *, begins: bool) -> dict[Any, np.ndarray[Any, Any]]:
        """Read the steps of Unity.

        Args:
            decisions: the ``DecisionSteps`` of this behavior.
            terminals: its ``TerminalSteps``.
            begins: this is the beginning of all episodes, so that ``terminals`` belong to none.

        Returns:
            ``{name: [m, ...]}``: rewards and ends; under ``("last", name)`` the last observations of episodes that
            ended.
        """
        m = len(self.deciding)
        result: dict[Any, np.ndarray[Any, Any]] = {
            name: np.zeros((m, 1), np.float32 if "reward" in name else bool)
            for name in ("reward", "group_reward", "done", "terminated", "truncated")
        }
        self.order = decisions.agent_id.tolist()
        if not begins:
            numbers = terminals.agent_id.tolist()
            for i, number in enumerate(numbers):
                place = self._place_of(number, {*numbers, *self.order})
                self.ended[place] = True
                result["reward"][place] += terminals.reward[i]
                result["group_reward"][place] += terminals.group_reward[i]
                interrupted = bool(terminals.interrupted[i])
                result["done"][place], result["truncated"][place] = True, interrupted
                result["terminated"][place] = not interrupted
                for name, values in zip(self.names, terminals.obs, strict=True):
                    result.setdefault(("last", name), self.observations[name].copy())[place] = values[i]
                    # Until the agent decides again, a reset has nothing to return.
                    self.observations[name][place] = 0
        self.deciding[...] = False
        self.masks[...] = True
        for i, number in enumerate(self.order):
            place = self._place_of(number, {*self.order})
            self.deciding[place] = True
            if not result["done"][place]:
                result["reward"][place] = decisions.reward[i]
                result["group_reward"][place] = decisions.group_reward[i]
            for name, values in zip(self.names, decisions.obs, strict=True):
                self.observations[name][place] = values[i]
            if decisions.action_mask is not None:
                # Unity's masks are True for what is forbidden.
                self.masks[place] = ~np.concatenate([branch[i] for branch in decisions.action_mask]).astype(bool)
        return result

    def _place_of(self, number: int, present: set[int]) -> int:
        """Return the place of an agent. A new one takes that of an agent that is absent, or has ended if possible."""
        if number not in self.places:
            absent = {old: place for old, place in self.places.items() if old not in present}
            if not absent:
                raise NotSupported(
                    f"The behavior {self.name!r} has a new agent, number {number}, beside the {len(self.places)} that "
                    "it had at first. The number of agents must not grow."
                )
            old = min(absent, key=lambda each: (not self.ended[absent[each]], absent[each]))
            self.places[number] = self.places.pop(old)
        return self.places[number]
