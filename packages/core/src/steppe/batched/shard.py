"""Shard: the environments of a batch that are in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steppe.batched.flags import Flags
from steppe.batched.loose_entries import LooseRows
from steppe.batched.td_row import TensorDictRow
from steppe.envs import Loop, Progress, Rows, RowWriter, writer_of_one
from steppe.specs import below_next
from steppe.storage import Storage
from steppe.workers import ItemError

__all__ = ["Shard"]


class Shard:
    """Steps and resets the environments of a batch that are in one process; each writes its row of storage.

    Array environments of one class are stepped by one loop, other environments one by one.

    Args:
        envs: the environments.
        storage: ``[n]`` rows of root and ``("next", ...)`` leaves.
        flags: the flags of all ``n`` rows.
        first_row: the row of the first environment.
        words: the control block, in which the shard notes the row that it steps, counted from 1. If the process ends,
            its caller reads there which environment was at work.
        at: the index of that word.
    """

    def __init__(
        self, envs: list[Any], storage: Storage, flags: Flags, first_row: int = 0, *, words: Any = None, at: int = 0
    ) -> None:
        self.envs, self.first_row = envs, first_row
        self.progress = Progress(words, at, first_row)
        part = slice(first_row, first_row + len(envs))
        self.was_reset, self.has_info = flags.was_reset[part], flags.has_info[part]
        self._marked = True  # whether `was_reset` may have a True
        self._has_infos = any(key[0] == "env_info" for key in storage.arrays)
        self._infos = [
            {key[1]: array[row, ...] for key, array in storage.arrays.items() if key[0] == "env_info"}
            for row in range(part.start, part.stop)
        ]
        self.parts: list[_Looped | _OnTensorDicts]
        #: The entries of these rows that have no place in storage; None if there are none.
        self.loose: LooseRows | None = LooseRows(envs[0], first_row, flags.loose[part])
        if not self.loose.values:
            self.loose = None
        joined = type(envs[0]).join_rows(envs) if _writes_rows(envs) else None
        if joined is not None:
            self.parts = [_Looped(joined, storage, first_row, self.progress, self.loose, 0)]
        else:
            self.parts = [
                _OnTensorDicts(
                    TensorDictRow(env, storage, row, self.loose, row - first_row), self.progress, row - first_row
                )
                if (writer := writer_of_one(env)) is None
                else _Looped(writer, storage, row, Progress(words, at, row), self.loose, row - first_row)
                for row, env in enumerate(envs, first_row)
            ]
        self._whole: list[tuple[Any, Any, int]] = [(part, None, first) for first, part in enumerate(self.parts)]

    def reset(self, rows: list[int], *, on_data: bool = False, by_masks: bool = False) -> None:
        """Begin episodes, in the root rows.

        Args:
            rows: the rows.
            on_data: begin at the state in the row, and reset only what the row's masks select.
            by_masks: reset only what the row's masks select.
        """
        if self.loose is not None:
            self.loose.begin()
        try:
            for part, at, first in self._split(rows):
                part.reset(at, self._infos_at(at, first), on_data=on_data, by_masks=by_masks)
        except Exception as error:
            raise ItemError(self.progress.row, "reset") from error

    def decoder(self) -> Callable[[Any], list[Any] | None] | None:
        """Return a function that decodes the only action of all rows; None if actions go through storage."""
        part = self.parts[0]
        return part.loop.writer.decoder_of_rows() if len(self.parts) == 1 and isinstance(part, _Looped) else None

    def step(self, rows: list[int] | None = None, *, reset: bool = False, decoded: list[Any] | None = None) -> int:
        """Step rows, and reset those that end if ``reset`` is set.

        Args:
            rows: the rows; None for all.
            reset: whether rows that end begin a new episode.
            decoded: decoded actions of all rows, from :meth:`decoder`; by default the shard decodes those in storage.

        Returns:
            How many rows were reset.
        """
        n, doing = 0, "step"
        if reset and self._marked:
            self.was_reset[...] = self._marked = False
        if self.loose is not None:
            self.loose.begin()
        try:
            for part, at, first in self._whole if rows is None else self._split(rows):
                doing = "step"
                infos = self._infos_at(None if rows is None else at, first) if self._has_infos else None
                ended = part.step(at, infos, reset=reset, decoded=decoded)
                n += len(ended)
                if reset and ended:
                    doing = "reset"
                    part.begin_anew(ended, self._infos_at(ended, first))
                    self._marked = True
                    for row in ended:
                        self.was_reset[first + row] = True
        except Exception as error:
            raise ItemError(self.progress.row, doing) from error
        return n

    def _split(self, rows: list[int]) -> list[tuple[Any, Any, int]]:
        """Return which rows of which part are meant; rows of a part are counted from its first row."""
        if len(self.parts) == 1:
            return [(self.parts[0], rows, 0)]
        return [(self.parts[row], [0], row) for row in rows]

    def _infos_at(self, at: Sequence[int] | None, first: int) -> list[dict[str, Any] | None] | None:
        """Return the ``env_info`` of rows of a part for a reset; None if none of them has one."""
        if not self._has_infos or not self.has_info.any():
            return None
        if at is None:
            at = range(len(self.envs) if len(self.parts) == 1 else 1)
        return [
            {key: view.copy() for key, view in self._infos[first + row].items()} if self.has_info[first + row] else None
            for row in at
        ]


def _writes_rows(envs: list[Any]) -> bool:
    return all(type(env) is type(envs[0]) and writer_of_one(env) is not None for env in envs)


class _Looped:
    """The rows of array environments that one loop steps."""

    def __init__(
        self,
        writer: RowWriter,
        storage: Storage,
        first_row: int,
        progress: Progress,
        loose: LooseRows | None,
        first_loose: int,
    ) -> None:
        part, arrays, layout = slice(first_row, first_row + writer.n), storage.arrays, writer.layout
        root: dict[Any, Any] = {key: arrays[key][part] for key in layout.root_keys}
        following: dict[Any, Any] = {
            key: arrays[below_next(key)][part] for key in layout.next_spec.keys(include_nested=True, leaves_only=True)
        }
        if loose is not None:
            root.update((key, loose.column(key, first_loose, root=True)) for key in layout.loose)
            following.update((key, loose.column(key, first_loose, root=False)) for key in layout.loose)
        self.loop = Loop(writer, Rows(layout, root, following), progress)
        self.decode = writer.decode
        self.actions = {key: arrays[key][part] for key in layout.action_keys}

    def step(self, at: list[int] | None, infos: Any, *, reset: bool, decoded: list[Any] | None = None) -> list[int]:
        if decoded is None:
            actions = self.actions
            if at is not None:
                index = np.asarray(at, np.int64)
                actions = {key: rows[index] for key, rows in actions.items()}
            decoded = self.decode(actions)
        ended = self.loop.step(decoded, at)
        return [row for row, _, _ in ended] if ended else []

    def begin_anew(self, rows: list[int], infos: Any) -> None:
        self.loop.reset(rows, infos)

    def reset(self, at: list[int], infos: Any, *, on_data: bool, by_masks: bool) -> None:
        self.loop.reset(at, infos)


class _OnTensorDicts:
    """The row of an environment that steps on TensorDicts."""

    def __init__(self, env_row: TensorDictRow, progress: Progress, row: int) -> None:
        self.env_row, self.progress, self.row = env_row, progress, row
        self.root: Any = None

    def _at_work(self) -> None:
        self.progress.words[self.progress.at] = self.progress.base + self.row

    def step(self, at: list[int] | None, infos: Any, *, reset: bool, decoded: None = None) -> list[int]:
        self._at_work()
        self.root = self.env_row.step(reset=reset, partial=at is not None, has_info=_has_info(infos))
        return [0] if self.root is not None else []

    def begin_anew(self, rows: list[int], infos: Any) -> None:
        root, self.root = self.root, None
        self.env_row.begin_anew(root)

    def reset(self, at: list[int], infos: Any, *, on_data: bool, by_masks: bool) -> None:
        self._at_work()
        self.env_row.reset(on_data=on_data, by_masks=by_masks, has_info=_has_info(infos))


def _has_info(infos: Any) -> bool:
    return infos is not None and infos[0] is not None
