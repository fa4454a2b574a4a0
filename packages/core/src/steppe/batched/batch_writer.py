"""BatchWriter: the row writer of all environments of a batch, for every backend."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from steppe.batched.backends.base import Backend
from steppe.batched.operations import RESET, STEP, STEP_AND_RESET
from steppe.batched.storage_rows import WRITTEN, BatchRows, arrays_of_rows
from steppe.envs import BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter

if TYPE_CHECKING:
    from steppe.batched.base import BatchedEnv

__all__ = ["BatchWriter"]

_T = TypeVar("_T")


class BatchWriter(RowWriter):
    """Step the environments of a batch, which write the rows of its storage.

    Args:
        batch: the batch. It refers to this object, which keeps only a weak reference, so that an unused batch is freed
            at once.
        backend: steps the environments.
        storage_rows: reads and writes the storage of the batch.
        layout: the entries of each row.
        on_arrays: whether all environments write rows of arrays themselves.
    """

    def __init__(
        self, batch: BatchedEnv, backend: Backend, storage_rows: BatchRows, layout: RowLayout, *, on_arrays: bool
    ) -> None:
        self.name, self.backend, self.storage_rows = type(batch).__name__, backend, storage_rows
        self.in_use, self._batch = batch.in_use, weakref.ref(batch)
        self.layout, self.on_arrays = layout, on_arrays
        self.own_rows = Rows(layout, *arrays_of_rows(layout, storage_rows.storage))
        self.n = self.own_rows.n

    def decode(self, actions: dict[Any, np.ndarray[Any, Any]]) -> Any:
        """Write actions ``{key: [n, *shape]}`` of all rows into storage, where the environments find them."""
        for key, values in actions.items():
            self.storage_rows.storage.arrays[key][...] = values
        return WRITTEN

    def fast_decoder(self, batch_size: torch.Size) -> Callable[[torch.Tensor], Any] | None:
        """Return a function that decodes the only action of all rows, or else checks it and writes it into storage."""
        if len(self.storage_rows.actions) != 1 or not batch_size:
            return None
        decode = None if self.layout.reads_root else self.backend.decoder()
        return self.storage_rows.write_fitting if decode is None else decode

    def fill_root(self, key: Any) -> bool:
        """Write an entry of the root that the caller's data lacks, from storage."""
        return self.storage_rows.fill_root(key)

    def failed(self, error: BaseException) -> None:
        """Let the batch know that an operation raised: its environments may have been stopped."""
        batch = self._batch()
        if batch is not None:
            batch.after_error(error)

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write the rows in storage. Errors of workers name the row themselves."""
        return _BoundBatch(self, rows)


class _BoundBatch(BoundWriter):
    resets_in_step = True

    def __init__(self, writer: BatchWriter, rows: Rows) -> None:
        self.name, self.backend, self.n = writer.name, writer.backend, writer.n
        self.check, self.failed = writer.backend.check, writer.failed
        self.storage_rows, self.flags = writer.storage_rows, writer.storage_rows.flags
        # One flag for each row.
        self.done, self.terminated, self.truncated = (
            None if array is None else array.reshape(self.n, -1)
            for array in (rows.next.get(name) for name in ("done", "terminated", "truncated"))
        )

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Act in some rows, or all."""
        some = None if at is None else list(at)
        if actions is not WRITTEN:  # the environments are in this process, and say themselves which rows have ended
            return self._run(self.backend.step_decoded, actions, some, False)
        self._run(self.backend.run, STEP, some)
        assert self.done is not None
        done: Any = self.done.any(-1)
        rows = done.nonzero()[0].tolist()
        return self._ended(rows if at is None else [row for row in rows if row in set(at)])

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        """Step all rows and reset the ended ones in one round trip; workers keep the ``env_info`` of their rows."""
        if actions is not WRITTEN:
            return self._run(self.backend.step_decoded, actions, None, True)
        n_reset = self._run(self.backend.run, STEP_AND_RESET, None)
        return self._ended(self.flags.was_reset.nonzero()[0].tolist()) if n_reset else []

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        """Begin episodes in some rows."""
        self.check(self.name)
        if env_info is not None:
            self.storage_rows.write_infos(at, env_info)
        self._run(self.backend.run, RESET, None if len(at) == self.n else list(at))

    def _run(self, operation: Callable[..., _T], *arguments: object) -> _T:
        """Let the backend carry out an operation."""
        self.check(self.name)
        try:
            return operation(*arguments)
        except BaseException as error:
            self.failed(error)
            raise

    def _ended(self, rows: list[int]) -> Ended:
        flags = [
            [False] * len(rows) if array is None else [any(row) for row in array[rows].tolist()]
            for array in (self.terminated, self.truncated)
        ]
        return list(zip(rows, *flags, strict=True))
