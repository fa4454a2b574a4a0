"""Backend of environments in worker processes, several in each, and optionally some in the caller's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from steppe.batched.backends.base import Backend
from steppe.batched.backends.in_process import CallersShard
from steppe.batched.flags import Flags
from steppe.batched.shard import ShardService
from steppe.errors import WorkerError
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import (
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    Pool,
    Worker,
    uninterrupted,
)

__all__ = ["Processes", "serve"]

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
            f"{__name__}:serve",
            method=method,
            preload=_PRELOAD,
            label="environment",
            indices=rows,
            grace=shutdown_timeout if step_timeout is None else min(shutdown_timeout, step_timeout),
        )
        self.owner = self.pool.owner
        try:
            self.pool.begin([(first, factories[first:end]) for first, end in bounds], num_threads=num_threads)
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
            self._shard.service.use(storage, self._flags)
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

    def call(
        self, method: str, parts: Mapping[int, Any], *arguments: Any, is_step: bool = False, survives: bool = True
    ) -> dict[int, Any]:
        try:
            results = {} if self._shard is None else self._shard.call(method, parts, *arguments)
            messages = {}
            for worker, (first, end) in enumerate(self._bounds):
                own = {row: part for row, part in parts.items() if first <= row < end}
                if own:
                    messages[worker] = (method, own, *arguments)
            for answer in self.pool.ask(messages, self._step_timeout if is_step else None).values():
                results.update(answer)
        except WorkerError:
            if not (survives and self.pool.in_step):
                self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise
        except BaseException:
            self.stop_unless(lambda: self.pool.in_step, self.pool.grace)
            raise
        return results

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


def serve(worker: Worker, shard: tuple[int, list[Callable[[], Any]]]) -> None:
    """Make environments, send their reports, and serve commands until the caller is done.

    Args:
        worker: this process.
        shard: the row of the first environment, and the factories.
    """
    first_row, factories = shard
    service = ShardService(factories, first_row)
    try:
        worker.say((service.reports(), worker.new_modules()))
        worker.serve(service)
    finally:
        service.close()
