"""Games: the games of one Procgen environment, some of which can be stepped or reset without the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Frame", "Games"]

#: The action that ends an episode without a reward, and begins the next one.
_RESTART = -1

_Array = np.ndarray[Any, Any]


class Frame(NamedTuple):
    """What the games return, ``[n, ...]``.

    Attributes:
        images: ``[n, 3, 64, 64]`` uint8. Of a game whose episode has ended, it is the first image of the next one.
        rewards: ``[n]`` float32.
        ended: ``[n]`` bool.
        levels: ``[n, 1]`` int32, seeds of the levels that are being played.
        last_levels: ``[n, 1]`` int32, of games that ended: seeds of the levels that were played until then.
        completed: ``[n, 1]`` bool, of games that ended: whether the level was solved.
    """

    images: _Array
    rewards: _Array
    ended: _Array
    levels: _Array
    last_levels: _Array
    completed: _Array


class Games:
    """The games of one environment of Procgen.

    The library steps all games at once, resets games that end, and ignores its own ``reset()``. Games that must not be
    changed are stepped too, and then put back to their saved states.

    Args:
        library: an environment of ``procgen.ProcgenEnv`` or ``procgen.ProcgenGym3Env``.
    """

    def __init__(self, library: Any) -> None:
        self.use(library)

    def use(self, library: Any) -> None:
        """Continue with another environment of the library, of the same number of games."""
        self.gym3 = library if hasattr(library, "act") else library.env
        self.n = int(self.gym3.num)
        #: The games that are at the beginning of an episode which no reset has returned yet.
        self.begun = np.ones(self.n, bool)

    def step(self, actions: _Array, rows: Sequence[int] | None = None) -> Frame:
        """Step some games, or all.

        Args:
            actions: ``[n]`` actions.
            rows: numbers of the games that are stepped. ``None``: all.
        """
        self._act(np.asarray(actions, np.int32), rows)
        frame = self.frame()
        chosen = frame.ended if rows is None else np.isin(np.arange(self.n), rows) & frame.ended
        self.begun |= chosen
        if rows is None:
            self.begun = chosen.copy()
        else:
            self.begun[list(rows)] = frame.ended[list(rows)]
        return frame

    def reset(self, rows: Sequence[int]) -> Frame:
        """Begin episodes in some games.

        Games that are at the beginning of an episode stay there, unless a reset has returned it before.
        """
        chosen = np.zeros(self.n, bool)
        chosen[list(rows)] = True
        running = np.flatnonzero(chosen & ~self.begun)
        if len(running):
            actions = np.zeros(self.n, np.int32)
            actions[running] = _RESTART
            self._act(actions, running.tolist())
        self.begun &= ~chosen
        return self.frame()

    def _act(self, actions: _Array, rows: Sequence[int] | None) -> None:
        if rows is None or len(rows) == self.n:
            self.gym3.act(actions)
            return
        saved = self.gym3.callmethod("get_state")
        self.gym3.act(actions)
        states = self.gym3.callmethod("get_state")
        for row in rows:
            saved[row] = states[row]
        self.gym3.callmethod("set_state", saved)

    def frame(self) -> Frame:
        """Return what the games return now."""
        rewards, observations, first = self.gym3.observe()
        infos = self.gym3.get_info()
        return Frame(
            observations["rgb"].transpose(0, 3, 1, 2),
            rewards,
            np.asarray(first, bool),
            *(
                np.array([[info[name]] for info in infos], dtype)
                for name, dtype in (
                    ("level_seed", np.int32),
                    ("prev_level_seed", np.int32),
                    ("prev_level_complete", bool),
                )
            ),
        )
