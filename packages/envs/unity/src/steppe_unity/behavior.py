"""Behavior: the agents of one behavior of a Unity game, and their decisions."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.errors import ActionError, NotSupported

__all__ = ["Behavior"]

_Array = np.ndarray[Any, Any]


class Behavior:
    """The agents of one behavior.

    Each agent has a place, its row in the data. An agent whose episode has ended may come back under another number;
    it then takes the place of one that has ended.

    Args:
        name: name of the behavior in Unity.
        spec: its ``BehaviorSpec``.
        numbers: Unity's numbers of its agents.

    Attributes:
        size: the number of agents, m.
        sensors: the last observation of each agent: ``{name: [m, *shape]}`` float32; zeros for one that has ended and
            does not decide yet.
        observed: what a reset returns, by key relative to the group: the arrays of ``sensors``, ``mask`` ``[m]`` bool
            (the agents that decide next), ``action_mask`` ``[m, n]`` bool (the allowed values of all discrete branches,
            one after the other), and ends that are all False.
        stepped: what the last step returns beside that: rewards and ends ``[m, 1]``.
        ended: ``[m]`` bool, the agents that have ended and were not reset yet.
        deciding: the places of the agents that decide, in the order in which Unity takes their actions.
        over: the places of the agents that have ended in the last step.
        last: their last observations, an array ``[len(over), *shape]`` for each sensor.
    """

    def __init__(self, name: str, spec: Any, numbers: list[int]) -> None:
        self.name, self.spec, self.size = name, spec, len(numbers)
        self.branches = tuple(int(n) for n in spec.action_spec.discrete_branches)
        self.continuous = int(spec.action_spec.continuous_size)
        m = self.size
        self.sensors = {
            each.name or f"observation_{i}": np.zeros((m, *each.shape), np.float32)
            for i, each in enumerate(spec.observation_specs)
        }
        self._mask, self._action_mask = np.zeros(m, bool), np.ones((m, sum(self.branches)), bool)
        self.observed: dict[tuple[str, ...], _Array] = {
            **{("observation", sensor): values for sensor, values in self.sensors.items()},
            ("mask",): self._mask,
            **{(flag,): np.zeros((m, 1), bool) for flag in ("done", "terminated", "truncated")},
        }
        if self.branches:
            self.observed["action_mask",] = self._action_mask
        self._reward, self._group_reward = np.zeros((m, 1), np.float32), np.zeros((m, 1), np.float32)
        self._done, self._terminated, self._truncated = (np.zeros((m, 1), bool) for _ in range(3))
        self.stepped: dict[tuple[str, ...], _Array] = {
            ("reward",): self._reward,
            ("group_reward",): self._group_reward,
            ("done",): self._done,
            ("terminated",): self._terminated,
            ("truncated",): self._truncated,
        }
        self.ended = np.zeros(m, bool)
        self.deciding: list[int] = []
        self.over: list[int] = []
        self.last: list[_Array] = []
        self._places = {number: place for place, number in enumerate(numbers)}

    def restart(self, numbers: list[int]) -> None:
        """Take the agents of a game that has been started again.

        Args:
            numbers: Unity's numbers of its agents, as many as before.
        """
        self._places = {number: place for place, number in enumerate(numbers)}
        self.ended[...] = False

    def begin(self, decisions: Any) -> None:
        """Read the beginning of all episodes.

        Args:
            decisions: the ``DecisionSteps`` of this behavior.
        """
        self.ended[...] = False
        self.over = []
        self._read_decisions(decisions, decisions.agent_id.tolist())

    def read(self, decisions: Any, terminals: Any) -> bool:
        """Read the result of a step.

        Args:
            decisions: the ``DecisionSteps`` of this behavior.
            terminals: its ``TerminalSteps``.

        Returns:
            Whether an agent has ended.
        """
        numbers, order = terminals.agent_id.tolist(), decisions.agent_id.tolist()
        for values in self.stepped.values():
            values.fill(0)
        self.over = over = self._places_of(numbers, {*numbers, *order}) if numbers else []
        if over:
            self.ended[over] = True
            np.add.at(self._reward, (over, 0), terminals.reward)
            np.add.at(self._group_reward, (over, 0), terminals.group_reward)
            interrupted = np.asarray(terminals.interrupted, bool)
            self._done[over] = True
            self._truncated[over, 0] = interrupted
            self._terminated[over, 0] = ~interrupted
            self.last = terminals.obs
            for values in self.sensors.values():
                values[over] = 0  # until the agent decides again, a reset has nothing to return
        at = self._read_decisions(decisions, order)
        # The reward of an agent that has ended is that of its last step, not of its new episode.
        goes_on = ~self._done[at, 0] if over else slice(None)
        rewarded = np.asarray(at, np.int64)[goes_on]
        self._reward[rewarded, 0] = decisions.reward[goes_on]
        self._group_reward[rewarded, 0] = decisions.group_reward[goes_on]
        return bool(over)

    def check_choices(self, chosen: _Array) -> None:
        """Raise an ActionError if a value is not one of its branch; Unity would take it.

        Args:
            chosen: the discrete actions of the agents that decide, ``[deciding, branches]``; -1 for no choice.
        """
        if not self.branches or not ((chosen < 0) | (chosen >= self.branches)).any():
            return
        for place, values in zip(self.deciding, chosen.tolist(), strict=True):
            for branch, (value, n) in enumerate(zip(values, self.branches, strict=True)):
                if not 0 <= value < n:
                    found = "none or several" if value == -1 else value
                    raise ActionError(
                        f"Agent '{self.name}_{place}' must choose one of the values 0 to {n - 1} in branch {branch} of "
                        f"'discrete_action', found {found}. env.full_action_spec says what each agent may choose."
                    )

    def _read_decisions(self, decisions: Any, order: list[int]) -> list[int]:
        """Read observations and masks of the agents that decide; return their places."""
        self.deciding = at = self._places_of(order, {*order})
        self._mask.fill(False)
        self._mask[at] = True
        for values, own in zip(decisions.obs, self.sensors.values(), strict=True):
            own[at] = values
        if self.branches:
            self._action_mask.fill(True)
            if decisions.action_mask is not None and at:
                # Unity's masks are True for what is forbidden.
                self._action_mask[at] = ~np.concatenate(decisions.action_mask, 1).astype(bool)
        return at

    def _places_of(self, numbers: list[int], present: set[int]) -> list[int]:
        """Return the places of agents. A new one takes that of an agent that is absent, or has ended if possible."""
        known = self._places
        return [known[each] if each in known else self._new_place(each, present) for each in numbers]

    def _new_place(self, number: int, present: set[int]) -> int:
        absent = {old: place for old, place in self._places.items() if old not in present}
        if not absent:
            raise NotSupported(
                f"The behavior {self.name!r} has a new agent, number {number}, beside the {self.size} that it had at "
                "first. The number of agents must not grow."
            )
        old = min(absent, key=lambda each: (not self.ended[absent[each]], absent[each]))
        self._places[number] = self._places.pop(old)
        return self._places[number]
