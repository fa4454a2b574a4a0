"""GameWriter: a row writer that copies what a Unity game returns into the caller's row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steppe.envs import BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter

if TYPE_CHECKING:
    from .wrapper import UnityMLAgentsWrapper

__all__ = ["GameWriter"]

_Array = np.ndarray[Any, Any]

#: The actions of all agents of each behavior in one step: continuous ``[m, n]``, discrete ``[m, branches]``.
Actions = dict[str, tuple[_Array, _Array]]


class GameWriter(RowWriter):
    """Row writer whose only row is a game.

    Its agents end by themselves, and the row has no done entry of its own: it has "ended" in each step in which an
    agent has, and a reset without infos is one of the agents that have ended, which leaves the game alone.

    Args:
        env: the environment.
    """

    n = 1
    inverts = True  # decode() returns the actions of behaviors, not those of groups
    on_arrays = True

    def __init__(self, env: UnityMLAgentsWrapper) -> None:
        self.env, self.layout = env, RowLayout.of(env)

    def decode(self, actions: dict[str | tuple[str, ...], _Array]) -> list[Actions]:
        """Convert actions ``{(group, name): [k, agents, *shape]}`` to those of k steps."""
        k = len(next(iter(actions.values())))
        sent = {
            name: (
                np.zeros((k, behavior.size, behavior.continuous), np.float32),
                np.zeros((k, behavior.size, len(behavior.branches)), np.int32),
            )
            for name, behavior in self.env.behaviors.items()
        }
        for group in self.env.groups:
            group.send(actions, *sent[group.behavior.name])
        return [{name: (c[step], d[step]) for name, (c, d) in sent.items()} for step in range(k)]

    def bind(self, rows: Rows, progress: Progress) -> BoundGame:
        """Prepare to write this row. ``progress`` is not used: there is one row."""
        return BoundGame(self.env, rows)


class BoundGame(BoundWriter):
    """The game bound to the row that it writes."""

    def __init__(self, env: UnityMLAgentsWrapper, rows: Rows) -> None:
        self.env = env
        self._next = [(group.write_step, _entries_of(group.name, rows.next)) for group in env.groups]
        self._root = [(group.write_root, _entries_of(group.name, rows.root)) for group in env.groups]

    def step(self, actions: Sequence[Actions], at: Sequence[int] | None = None) -> Ended:
        """Step the game; return the row if an agent has ended."""
        ended = self.env.advance(actions[0])
        for write, out in self._next:
            write(out)
        return [(0, False, False)] if ended else []

    def step_and_reset(self, actions: Sequence[Actions], env_info: EnvInfos = None) -> Ended:
        """Step the game, and begin the episodes of the agents that have ended."""
        ended = self.step(actions)
        if ended:
            self.reset((0,))
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Reset the game, or, without ``env_info``, only the agents that have ended. Games take no infos."""
        if env_info is None:
            self.env.begin_ended()
        else:
            self.env.begin_game()
        self.write_root()

    def write_root(self) -> None:
        """Write the observations of the next step into the root."""
        for write, out in self._root:
            write(out)


def _entries_of(group: str, arrays: Mapping[Any, _Array]) -> dict[tuple[str, ...], _Array]:
    """Return the entries of a group in the only row, by key relative to the group."""
    return {key[1:]: array[0] for key, array in arrays.items() if key[0] == group and isinstance(key, tuple)}
