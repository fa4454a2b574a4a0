"""Backend of environments in worker processes, several in each, and optionally some in the caller's process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import cloudpickle

from steppe.batched.backends.base import Backend
from steppe.batched.backends.in_process import CallersShard
from steppe.batched.backends.serving_shard import ENTRY, ShardFactories
from steppe.batched.flags import Flags
from steppe.batched.loose_entries import LooseInputs, LooseReports
from steppe.errors import WorkerError
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import (
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    Pool,
    uninterrupted,
)

__all__ = ["Processes"]

# Modules that the fork server imports before it forks workers.
_PRELOAD = ("steppe.batched",)


class Processes(Backend):
    """The workers of a batch; see :class:`~steppe.batched.backends.base.Backend`.

    Args:
        factories: a factory for each row.
        n_processes: how many processes step them, the shard of the caller included.
        caller_share: whether this process steps the first shard.
        method: the start method of the workers.
        num_threads: threads that torch uses in each.
        step_timeout: seconds that a step or reset may take, or None.
        shutdown_timeout: seconds that environments have to close.

    Raises:
        WorkerError: an environment cannot be made.
    """

    outlives: ClassVar[bool] = True

    def __init__(
        self,
        factories: list[Callable[[], Any]],
        *,
        n_processes: int,
        caller_share: bool = False,
        method: str | None = None,
        num_threads: int = 1,
        step_timeout: float | None = None,
        shutdown_timeout: float,
    ) -> None:
        n = len(factories)
        ends = [n * (w + 1) // n_processes for w in range(n_processes)]
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        n_callers_rows = bounds.pop(0)[1] if caller_share else 0
        self._bounds = bounds
        self._step_timeout, self._shutdown_timeout = step_timeout, shutdown_timeout
        self._shard: CallersShard | None = None
        rows = [range(first, end) for first, end in bounds]
        self.pool = Pool(
            len(bounds),
            ENTRY,
            method=method,
            preload=_PRELOAD,
            label="environment",
            indices=rows,
            grace=shutdown_timeout if step_timeout is None else min(shutdown_timeout, step_timeout),
        )
        self.owner = self.pool.owner
        try:
            shares = [ShardFactories(first, factories[first:end]) for first, end in bounds]
            self.pool.begin(shares, num_threads=num_threads)
            self._shard = CallersShard(factories[:n_callers_rows]) if n_callers_rows else None
            self.reports = [] if self._shard is None else list(self._shard.reports)
            for w in range(len(bounds)):
                reports, modules = self.pool.receive(w)
                self.reports += reports
                if w == 0:
                    self.pool.preload(modules)
        except BaseException:
            self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; empty once they were stopped."""
        return [] if self.stopped else self.pool.pids

    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        storage = Storage(row, (n,), kind="shared")
        control = self.pool.share(Flags.nbytes(n), (row, n), [storage.fd])
        self._flags = Flags(n, control.extra)
        if self._shard is not None:
            self._shard.use(storage, self._flags)
        return storage, self._flags

    def run(self, op: int, rows: list[int] | None) -> int:
        try:
            overlap = self._shard.stepper(op, rows) if self._shard is not None else None
            if rows is None:
                return self.pool.round(op, timeout=self._step_timeout, overlap=overlap)
            active = self._flags.active
            active[:] = False
            active[rows] = True
            only = [bool(active[first:end].any()) for first, end in self._bounds]
            return self.pool.round(op, True, only=only, timeout=self._step_timeout, overlap=overlap)
        except WorkerError:
            # Rows may be half written and a worker may have ended, so the batch cannot be used any more.
            self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise
        except BaseException:
            # After Ctrl-C the workers finish the step, its data is dropped, and the batch stays usable.
            self.stop_unless(self.pool.settle, self.pool.grace)
            raise

    def take_loose(self) -> LooseReports:
        reports = {} if self._shard is None else self._shard.take_loose()
        changed = self._flags.loose
        messages = {w: ("take_loose",) for w, (first, end) in enumerate(self._bounds) if changed[first:end].any()}
        for answer in self._answers(messages).values():
            reports.update(answer)
        return reports

    def set_loose(self, inputs: LooseInputs) -> None:
        if self._shard is not None:
            self._shard.set_loose(inputs)
        self._answers({w: ("set_loose", part) for w, part in self._parts(inputs).items()})

    def exchange(self, op: int, data: dict[int, Any]) -> dict[int, Any]:
        try:
            results = self._shard.exchange(op, data) if self._shard is not None else {}
            parts = self._parts(data)
            messages = {w: ("exchange", op, part) for w, part in parts.items()}
            for answer in self.pool.ask(messages, self._step_timeout).values():
                results.update(answer)
        except WorkerError:
            if not (self.pool.in_step and self.may_be_refused(op, data)):
                self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise
        except BaseException:
            self.stop_unless(lambda: self.pool.in_step, self.pool.grace)
            raise
        return results

    def ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        values = self._shard.ask(path, calls) if self._shard is not None else []
        parts = self._parts(dict(enumerate(calls)))
        messages = {w: ("ask_pickled", path, cloudpickle.dumps(part)) for w, part in parts.items()}
        for answer in self._answers(messages).values():
            values += cloudpickle.loads(answer)
        return values

    def seed(self, seeds: dict[int, Any]) -> None:
        if self._shard is not None:
            self._shard.seed(seeds)
        self._answers({w: ("seed", part) for w, part in self._parts(seeds).items()})

    def _parts(self, data: dict[int, Any]) -> dict[int, dict[int, Any]]:
        """Divide data by row among the workers; workers without rows are left out."""
        parts = {
            w: {row: value for row, value in data.items() if first <= row < end}
            for w, (first, end) in enumerate(self._bounds)
        }
        return {w: part for w, part in parts.items() if part}

    def _answers(self, messages: dict[int, Any]) -> dict[int, Any]:
        try:
            return self.pool.ask(messages)
        except WorkerError:
            if not self.pool.in_step:
                self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise
        except BaseException:
            self.stop_unless(lambda: self.pool.in_step, self.pool.grace)
            raise

    def kill(self) -> None:
        self.pool.kill()

    def stop(self, timeout: float | None = None) -> None:
        if self.stopped:
            return
        self.stopped = True
        with uninterrupted():  # stopping takes a limited time, and a second Ctrl-C would leave processes behind
            self.pool.stop(self._shutdown_timeout if timeout is None else timeout)
            # In a forked child the environments are copies; its parent closes them.
            if self._shard is not None and self.pool.is_ours:
                self._shard.stop(0.0)
