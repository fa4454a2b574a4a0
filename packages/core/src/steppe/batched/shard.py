"""ShardService: the environments of a batch that one process or thread steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from steppe.batched.attributes import ask_row
from steppe.batched.batch_layout import EnvReport, make_envs, report
from steppe.batched.flags import Flags
from steppe.batched.loose_entries import LooseInputs, LooseReports, LooseRows
from steppe.batched.operations import RESET, RESET_BY_MASKS, RESET_ON_DATA, STEP, STEP_AND_RESET
from steppe.batched.storage_rows import arrays_of_rows
from steppe.batched.td_row import TensorDictRow
from steppe.batched.unbuffered import run_rows
from steppe.envs import Ended, Loop, Progress, Rows, RowWriter, writer_of_one
from steppe.errors import NotSupported
from steppe.storage import Storage
from steppe.workers import ControlBlock, ItemError, Service, Worker

__all__ = ["ShardService"]


class ShardService(Service):
    """The environments of a batch that one worker process, one thread or the caller steps.

    Once there is storage, each environment writes its row of it. Array environments of one class are stepped by one
    loop, other environments one by one.

    Args:
        factories: a factory for each row.
        first_row: the row of the first.

    Attributes:
        envs: the environments by row.

    Raises:
        ItemError: an environment cannot be made.
    """

    _notes_begun = False

    def __init__(self, factories: list[Callable[[], Any]], first_row: int) -> None:
        self.first_row = first_row
        self.envs = dict(enumerate(make_envs(factories, first_row), first_row))

    def reports(self) -> list[EnvReport]:
        """Return the report of each environment, for the batch."""
        return [report(env) for env in self.envs.values()]

    def close(self) -> None:
        """Close the environments; exceptions that they raise are dropped."""
        for env in self.envs.values():
            try:
                env.close(raise_if_closed=False)
            except Exception:
                continue

    def call(self, message: Any) -> Any:
        """Call the method that a message names: ``("seed", seeds)`` calls ``seed(seeds)``."""
        method, *arguments = message
        return getattr(self, method)(*arguments)

    # -- methods of Backend.call: the first argument and the results are values by row --------------------------------

    def exchange(self, data: dict[int, Any], op: int) -> dict[int, tuple[Any, Any]]:
        """Step or reset environments, each on its own TensorDict: see :func:`run_rows`."""
        if op == RESET:
            self._begin([row - self.first_row for row in data])
        return run_rows(op, self.envs, data)

    def ask(self, calls: dict[int, Any], path: tuple[str, ...]) -> dict[int, Any]:
        """Read or call an attribute in environments: see :func:`ask_row`."""
        return {row: ask_row(self.envs[row], row, path, call) for row, call in calls.items()}

    def seed(self, seeds: dict[int, Any]) -> dict[int, None]:
        """Seed environments."""
        for row, seed in seeds.items():
            try:
                self.envs[row].set_seed(seed)
            except Exception as error:
                raise ItemError(row, "set_seed") from error
        return {}

    def take_loose(self, rows: dict[int, None]) -> LooseReports:
        """Return the loose entries that changed since the last call."""
        return self.loose.take()

    def set_loose(self, inputs: LooseInputs) -> dict[int, None]:
        """Take over loose entries that the caller has changed."""
        self.loose.set_inputs(inputs)
        return {}

    # -- rows of storage ----------------------------------------------------------------------------------------------

    def share(self, worker: Worker, control: ControlBlock, message: Any, fds: list[int]) -> None:
        """Write rows of the storage that the caller shares from now on."""
        row, n_rows = message
        storage = Storage(row, (n_rows,), kind="shared", fd=fds[0])
        at_work, at = worker.at_work
        self.use(storage, Flags(n_rows, control.extra), words=at_work, at=at)

    def use(self, storage: Storage, flags: Flags, *, words: Any = None, at: int = 0) -> None:
        """Write rows of this storage from now on.

        Args:
            storage: ``[n]`` rows of root and ``("next", ...)`` leaves.
            flags: the flags of all ``n`` rows.
            words: the control block, in which the row that is stepped is noted, counted from 1. If the process ends,
                its caller reads there which environment was at work.
            at: the index of that word.
        """
        envs, first_row = list(self.envs.values()), self.first_row
        self.progress = Progress(words, at, first_row)
        part = slice(first_row, first_row + len(envs))
        self.active, self.was_reset, self.has_info = flags.active[part], flags.was_reset[part], flags.has_info[part]
        self.begun = flags.begun[part]
        self._marked = True  # whether `was_reset` may have a True
        self._has_infos = any(key[0] == "env_info" for key in storage.arrays)
        self._infos = [
            {key[1]: array[row, ...] for key, array in storage.arrays.items() if key[0] == "env_info"}
            for row in range(part.start, part.stop)
        ]
        self.parts: list[_Looped | TensorDictRow]
        #: The entries of these rows that have no place in storage.
        self.loose = LooseRows(envs[0], first_row, flags.loose[part])
        write_rows = all(type(env) is type(envs[0]) and writer_of_one(env) is not None for env in envs)
        joined = type(envs[0]).join_rows(envs) if write_rows else None
        if joined is not None:
            self.parts = [_Looped(joined, storage, first_row, self.progress, self.loose)]
        else:
            self.parts = [
                TensorDictRow(env, storage, row, self.progress, self.loose)
                if (writer := writer_of_one(env)) is None
                else _Looped(writer, storage, row, Progress(self.progress.words, at, row), self.loose)
                for row, env in enumerate(envs, first_row)
            ]
        # An environment on TensorDicts copies its next root to storage itself.
        self._notes_begun = any(isinstance(part, _Looped) for part in self.parts)
        self.begun[...] = not self._notes_begun
        self._some_begun = False  # whether a step has to clear flags of `begun`
        self._whole: list[tuple[Any, Any, int]] = [(part, None, first) for first, part in enumerate(self.parts)]

    def order(self, op: int, partial: int) -> int:
        """Carry out an operation; returns how many rows were reset.

        Args:
            op: the operation.
            partial: whether it is for the rows whose flag ``active`` is set; otherwise it is for all rows.
        """
        return self.run(op, self.active.nonzero()[0].tolist() if partial else None)

    def run(self, op: int, rows: list[int] | None) -> int:
        """Carry out an operation on rows of storage, None for all; returns how many ended and were reset."""
        if rows is not None and not rows:
            return 0  # another process may have all rows of a partial step
        if op in (STEP, STEP_AND_RESET):
            return len(self.step(rows, reset=op == STEP_AND_RESET))
        self.loose.begin()
        self._begin(slice(None) if rows is None else rows)
        on_data, by_masks = op == RESET_ON_DATA, op == RESET_BY_MASKS
        try:
            for part, at, first in self._split(list(range(len(self.envs))) if rows is None else rows):
                part.reset(at, self._infos_at(at, first), on_data=on_data, by_masks=by_masks)
        except Exception as error:
            raise ItemError(self.progress.row, "reset") from error
        return 0

    def decoder(self) -> Callable[[Any], list[Any] | None] | None:
        """Return a function that decodes the only action of all rows; None if actions go through storage."""
        part = self.parts[0]
        if len(self.parts) > 1 or not isinstance(part, _Looped):
            return None
        return part.loop.writer.fast_decoder(torch.Size((part.loop.writer.n,)))

    def step(self, rows: list[int] | None = None, reset: bool = False, decoded: list[Any] | None = None) -> Ended:
        """Step rows, and reset those that end if ``reset`` is set.

        Args:
            rows: the rows; None for all.
            reset: whether rows that end begin a new episode.
            decoded: decoded actions of all rows, from :meth:`decoder`; by default the shard decodes those in storage.

        Returns:
            The rows that were reset. With decoded actions, all rows that ended.
        """
        result: Ended = []
        doing = "step"
        if reset and self._marked:
            self.was_reset[...] = self._marked = False
        if self._some_begun:
            self.begun[slice(None) if rows is None else rows] = False
            self._some_begun = rows is not None
        if self.loose.reports:
            self.loose.begin()
        try:
            for part, at, first in self._whole if rows is None else self._split(rows):
                doing = "step"
                if decoded is not None:
                    ended = part.loop.step(decoded, at)
                else:
                    # An environment on TensorDicts may reset in its step.
                    infos = None if type(part) is _Looped else self._infos_at(None if rows is None else at, first)
                    ended = part.step(at, infos, reset=reset)
                if not ended:
                    continue
                result += ended
                if reset:
                    doing = "reset"
                    at = [row for row, _, _ in ended]
                    part.begin_anew(at, self._infos_at(at, first))
                    self._marked = True
                    for row in at:
                        self.was_reset[first + row] = True
                        self._begin(first + row)
        except Exception as error:
            raise ItemError(self.progress.row, doing) from error
        return result

    def _begin(self, rows: Any) -> None:
        """Note that the root of rows is newer than their ``next``."""
        if self._notes_begun:
            self.begun[rows] = self._some_begun = True

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


class _Looped:
    """The rows of array environments that one loop steps."""

    def __init__(
        self,
        writer: RowWriter,
        storage: Storage,
        first_row: int,
        progress: Progress,
        loose: LooseRows,
    ) -> None:
        part, layout = slice(first_row, first_row + writer.n), writer.layout
        root, following = arrays_of_rows(layout, storage, part)
        root.update((key, loose.column(key, first_row, root=True)) for key in layout.loose)
        following.update((key, loose.column(key, first_row, root=False)) for key in layout.loose)
        self.loop = Loop(writer, Rows(layout, root, following), progress)
        self.decode = writer.decode
        self.actions = {key: storage.arrays[key][part] for key in layout.action_keys}
        self.masks = [array[part] for key, array in storage.arrays.items() if key[-1] == "_reset"]

    def step(self, at: list[int] | None, infos: Any, *, reset: bool) -> Ended:
        index: Any = slice(None) if at is None else np.asarray(at, np.int64)
        return self.loop.step(self.decode({key: rows[index] for key, rows in self.actions.items()}), at)

    def begin_anew(self, rows: list[int], infos: Any) -> None:
        self.loop.reset(rows, infos)

    def reset(self, at: list[int], infos: Any, *, on_data: bool, by_masks: bool) -> None:
        if by_masks and not all(mask[at].all() for mask in self.masks):
            raise NotSupported("The masks '_reset' are for some agents alone: reset all agents of an environment.")
        self.loop.reset(at, infos)
