"""TableWriter: a row writer that copies rows of a data set into the caller's rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from steppe.envs import BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter

if TYPE_CHECKING:
    from .env import OpenMLEnv

__all__ = ["TableWriter"]


class TableWriter(RowWriter):
    """Write the rows of the data set that an :class:`OpenMLEnv` has drawn.

    A step reads observation and label from the root, because the caller may have edited them.

    Args:
        env: the environment, of batch size ``()`` or ``(n,)``.
    """

    on_arrays = True

    def __init__(self, env: OpenMLEnv) -> None:
        self.env, self.n = env, env.batch_size.numel()
        self.layout = RowLayout.of(env, root_inputs=("observation", "y"))
        self.missing: list[Any] = []

    def decode(self, actions: dict[str | tuple[str, ...], np.ndarray]) -> Any:
        """Return the guesses ``[k]`` for actions ``{"action": [k]}``."""
        return self.layout.actions.decode(actions)

    def fill_root(self, key: str | tuple[str, ...]) -> bool:
        """Let the next step take this entry from the rows that were drawn last."""
        self.missing.append(key)
        return True

    def bind(self, rows: Rows, progress: Progress) -> BoundTable:
        """Prepare to write these rows.

        ``progress`` is not used: an error concerns all rows.
        """
        return BoundTable(self, rows)


class BoundTable(BoundWriter):
    """The data set bound to the rows that it writes."""

    def __init__(self, writer: TableWriter, rows: Rows) -> None:
        self.env, self.rows, self.missing = writer.env, rows, writer.missing
        self._root = {key: rows.root[key] for key in ("observation", "y")}
        self._copied = [(root, rows.next[key]) for key, root in self._root.items()]
        self._label, self._reward = rows.root["y"], rows.next["reward"]
        self._flags = [rows.next[name] for name in ("done", "terminated")]
        self._ended: Ended = [(row, True, False) for row in range(writer.n)]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Compare the guesses with the labels. All episodes end."""
        if self.missing:
            shown = self.env.rows_of_table(self.env.drawn)
            for key in self.missing:
                self._root[key][...] = shown[key]
            self.missing.clear()
        # All rows end in each step, so the flags are written here: Rows.write_flags would find the rows that ended.
        where: Any = slice(None) if at is None else np.asarray(at)
        for root, following in self._copied:
            following[where] = root[where]
        for flags in self._flags:
            flags[where] = True
        self.rows.done_dirty = True
        self._reward[where, 0] = np.asarray(actions) == self._label[where]
        return list(self._ended) if at is None else [self._ended[row] for row in at]

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Draw other rows. ``env_info`` is ignored: a data set takes none."""
        where: Any = np.asarray(at) if len(at) < len(self._ended) else slice(None)
        self.env.drawn[where] = drawn = self.env.draw(len(at))
        for key, values in self.env.rows_of_table(drawn).items():
            self._root[key][where] = values
        self.rows.begin(at)
