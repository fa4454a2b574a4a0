"""GamesWriter: a row writer that copies what Procgen returns into the caller's rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from steppe.envs import Arrays, BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter
from steppe.errors import SpecError

from .games import Frame, Games

__all__ = ["GamesWriter", "write_begun", "write_step"]


def write_begun(frame: Frame, out: Arrays, rows: Sequence[int]) -> None:
    """Write the first observations of episodes into ``out[key][rows]``."""
    at = list(rows)
    out["observation"][at] = frame.images[at]
    out["level_seed"][at] = frame.levels[at]
    out["level_complete"][at] = False


def write_step(frame: Frame, out: Arrays, rows: Sequence[int] | slice) -> None:
    """Write the result of a step into ``out[key][rows]``.

    The library has overwritten the last image of a game that ended, so zeros are written.
    """
    ended = frame.ended
    out["observation"][rows] = frame.images[rows]
    out["level_seed"][rows] = frame.levels[rows]
    out["level_complete"][rows] = False
    out["reward"][rows] = frame.rewards[rows, None]
    if ended.any():
        over = np.flatnonzero(ended) if isinstance(rows, slice) else [row for row in rows if ended[row]]
        out["observation"][over] = 0
        out["level_seed"][over] = frame.last_levels[over]
        out["level_complete"][over] = frame.completed[over]


class GamesWriter(RowWriter):
    """Row writer whose rows are the games of one environment.

    Args:
        games: the games.
        layout: the entries of each row.
        one_hot: whether actions of the spec are one-hot rows.
    """

    def __init__(self, games: Games, layout: RowLayout, *, one_hot: bool) -> None:
        self.games, self.layout, self.n, self.one_hot = games, layout, games.n, one_hot

    def decode(self, actions: dict[str | tuple[str, ...], np.ndarray]) -> np.ndarray:
        """Convert actions ``{key: [k, *shape]}`` to actions of the library, ``[k]`` int32."""
        action = actions["action"]
        return (action.argmax(-1) if self.one_hot else action).astype(np.int32)

    def bind(self, rows: Rows, progress: Progress) -> BoundGames:
        """Prepare to write these rows.

        ``progress`` is not used: an error concerns all games.
        """
        return BoundGames(self, rows)


class BoundGames(BoundWriter):
    """The games bound to the rows that they write."""

    def __init__(self, writer: GamesWriter, rows: Rows) -> None:
        self.games, self.n, self.rows = writer.games, writer.n, rows

    def step(self, actions: np.ndarray | Sequence[np.ndarray], at: Sequence[int] | None = None) -> Ended:
        """Step some games, or all."""
        given = np.asarray(actions, np.int32).reshape(-1)
        some = at is not None and len(at) < self.n
        chosen = list(range(self.n)) if at is None else list(at)
        if len(given) != len(chosen):
            raise SpecError(f"Expected an action for each of {len(chosen)} games, found {len(given)}.")
        every = np.zeros(self.n, np.int32)
        every[chosen] = given
        frame = self.games.step(every, chosen if some else None)
        write_step(frame, self.rows.next, chosen if some else slice(None))
        rows = np.asarray(chosen) if some else None
        return self.rows.write_flags(frame.ended, frame.ended, np.zeros_like(frame.ended), rows)

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Begin episodes in some games. ``env_info`` is ignored: games take none."""
        write_begun(self.games.reset(list(at)), self.rows.root, at)
        self.rows.begin(at)
