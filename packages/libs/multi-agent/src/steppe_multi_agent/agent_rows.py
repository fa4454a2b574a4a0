"""AgentRows: the rows of a group, written agent by agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steppe.envs import as_numbers
from steppe.errors import SpecError

__all__ = ["AgentRows"]

#: Entries of one number for each agent, which are written for all agents at once.
_WRITTEN_TOGETHER = frozenset((name,) for name in ("reward", "done", "terminated", "truncated"))


class AgentRows:
    """Views of the rows of a group at one time step.

    Each agent has a view of its part of each entry, so that its values are copied once, into storage:

    >>> import numpy as np
    >>> from steppe_multi_agent import AgentRows
    >>> arrays = {("observation",): np.zeros((2, 3)), ("reward",): np.zeros((2, 1), np.float32)}
    >>> rows = AgentRows(["walker_0", "walker_1"], arrays)
    >>> rows.views[1]["observation"][...] = 5
    >>> rows.write_rewards({"walker_1": 2})
    >>> arrays["observation",].tolist(), arrays["reward",].tolist()
    ([[0.0, 0.0, 0.0], [5.0, 5.0, 5.0]], [[0.0], [2.0]])

    Args:
        agents: the names of the agents, in the order of the group.
        arrays: ``[agents, *shape]`` by key, relative to the group; or, for agents whose entries differ, a list of
            ``{key: [*shape]}`` with a dict for each agent, and ``shared`` for the others.
        shared: see ``arrays``.

    Attributes:
        views: for each agent its observations by key. A key of one name is also listed under that name alone.
        reward: ``[agents, 1]``; None in the root.
        done, terminated, truncated: ``[agents, 1]`` bool; None if the group does not end by itself.
    """

    def __init__(
        self,
        agents: Sequence[str],
        arrays: Mapping[tuple[str, ...], np.ndarray] | Sequence[Mapping[tuple[str, ...], np.ndarray]],
        shared: Mapping[tuple[str, ...], np.ndarray] | None = None,
    ) -> None:
        self.agents = list(agents)
        if isinstance(arrays, Mapping):
            shared = arrays
            alone = {key: array for key, array in arrays.items() if key not in _WRITTEN_TOGETHER}
            arrays = [{key: array[i, ...] for key, array in alone.items()} for i in range(len(self.agents))]
        shared = shared or {}
        self.views: list[dict[Any, np.ndarray]] = [
            {**views, **{key[0]: view for key, view in views.items() if len(key) == 1}} for views in arrays
        ]
        self.reward = shared.get(("reward",))
        self.done, self.terminated, self.truncated = (
            shared.get((name,)) for name in ("done", "terminated", "truncated")
        )

    @classmethod
    def of(cls, group: str, agents: Sequence[str], out: Mapping[Any, np.ndarray]) -> AgentRows:
        """Return views of the entries of a group in ``out``, of ``step_into`` or ``reset_into``."""
        return cls(agents, {key[1:]: row for key, row in out.items() if isinstance(key, tuple) and key[0] == group})

    def write_rewards(self, rewards: Mapping[str, Any]) -> None:
        """Write the reward of each agent, a number or an array of one number; 0 for agents without one.

        Raises:
            SpecError: a reward is not a number. The text names the agent.
        """
        target = self.reward
        assert target is not None
        values = [rewards.get(agent, 0.0) for agent in self.agents]
        try:
            target[:, 0] = as_numbers("reward", values)  # a fifth of the time of one call for each agent
        except ValueError:  # some rewards are arrays, or not numbers
            for row, agent, value in zip(target, self.agents, values, strict=True):
                try:
                    row[...] = as_numbers("reward", value, (1,))
                except SpecError as error:
                    raise SpecError(f"agent {agent!r}: {error}") from None

    def write_flags(self, ended: Mapping[str, tuple[Any, Any]]) -> None:
        """Write the done entries: the pair ``(terminated, truncated)`` of each agent that has ended."""
        done, terminated, truncated = self.done, self.terminated, self.truncated
        assert done is not None
        assert terminated is not None
        assert truncated is not None
        for flags in (done, terminated, truncated):
            flags.fill(False)
        if ended:
            for i, agent in enumerate(self.agents):
                if agent in ended:
                    terminated[i], truncated[i] = ended[agent]
                    done[i] = terminated[i] | truncated[i]
