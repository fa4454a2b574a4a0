"""Backend with a thread for each environment."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from steppe.batched import Flags, ShardService
from steppe.errors import WorkerError
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import (
    SHUTDOWN_TIMEOUT,
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    Failure,
    ItemError,
    uninterrupted,
)
from steppe_pools.async_backend import AsyncBackend, late_answer
from steppe_pools.turn import Turn

__all__ = ["Threads"]


class Threads(AsyncBackend):
    """Step each environment in a thread.

    See :class:`~steppe_pools.async_backend.AsyncBackend`.

    Args:
        change: the lock that callers hold; it is notified when an environment has finished.
        factories: a factory for each row.
        step_timeout: seconds that a step or reset may take, or None.

    Attributes:
        hung: rows whose environment was still in a call when the threads were stopped.
    """

    outlives: ClassVar[bool] = True

    def __init__(self, change: Turn, factories: list[Callable[[], Any]], *, step_timeout: float | None = None) -> None:
        self._change, self._step_timeout = change, step_timeout
        # Executors end their idle threads when they are garbage collected, and at the end of the interpreter.
        self._executors = [
            ThreadPoolExecutor(1, thread_name_prefix=f"steppe-env-{row}") for row in range(len(factories))
        ]
        self._shards: dict[int, ShardService] = {}
        self._ordered: dict[int, Future[Any]] = {}
        self._idents: set[int] = set()
        self._closing: dict[int, Future[Any]] | None = None
        self.owner = os.getpid()
        self._grace = SHUTDOWN_TIMEOUT if step_timeout is None else min(SHUTDOWN_TIMEOUT, step_timeout)
        self.hung: list[int] = []
        making = {row: self._making(row, make) for row, make in enumerate(factories)}
        try:
            self._all(
                "__init__", {0: making.pop(0)}
            )  # the first environment is made alone, because it imports the library
            self._all("__init__", making, survives=True)
            self.reports = [report for row in range(len(factories)) for report in self._shards[row].reports()]
        except BaseException:
            self.stop(SHUTDOWN_TIMEOUT)
            raise

    def _making(self, row: int, make: Callable[[], Any]) -> Callable[[], None]:
        context = contextvars.copy_context()  # library backends that the caller has set

        def run() -> None:
            self._idents.add(threading.get_ident())
            self._shards[row] = context.run(ShardService, [make], row)

        return run

    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        storage, self._flags = Storage(row, (n,), kind="shared" if staged else "plain"), Flags(n)
        for shard in self._shards.values():
            shard.use(storage, self._flags)
        return storage, self._flags

    # -- one environment ------------------------------------------------------------------------------------------

    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> None:
        shard = self._shards[row]
        call = partial(shard.order, op, False) if message is None else partial(_call, shard, "exchange", message, op)
        future = self._ordered[row] = self._submit(row, "step", call)
        future.add_done_callback(self._change.notify_all)

    def collect(self) -> dict[int, Any]:
        ended = [row for row, future in self._ordered.items() if future.done()]
        results = {row: self._ordered.pop(row).result() for row in ended}
        # An order returns a number, because its results are in storage.
        return {row: None if isinstance(result, int) else result[row] for row, result in results.items()}

    def wait(self, timeout: float | None) -> None:
        self._change.wait(timeout)

    # -- all environments -----------------------------------------------------------------------------------------

    def run(self, op: int, rows: list[int] | None) -> int:
        calls = {row: partial(self._shards[row].order, op, False) for row in (self._shards if rows is None else rows)}
        return sum(self._all("step", calls, timeout=self._step_timeout).values())

    def call(
        self, method: str, parts: Mapping[int, Any], *arguments: Any, is_step: bool = False, survives: bool = True
    ) -> dict[int, Any]:
        calls = {row: partial(_call, self._shards[row], method, part, *arguments) for row, part in parts.items()}
        answers = self._all(method, calls, timeout=self._step_timeout if is_step else None, survives=survives)
        return {row: answer[row] for row, answer in answers.items() if row in answer}

    def _submit(self, row: int, doing: str, call: Callable[[], Any]) -> Future[Any]:
        """Call a function in the thread of a row, once the thread is free."""
        return self._executors[row].submit(_raising, row, doing, call)

    def _all(
        self,
        doing: str,
        calls: Mapping[int, Callable[[], Any]],
        *,
        timeout: float | None = None,
        survives: bool = False,
    ) -> dict[int, Any]:
        """Call functions in threads and wait for all.

        An error stops the backend, unless ``survives`` is set.
        """
        futures: dict[int, Future[Any]] = {}
        try:
            with uninterrupted():
                futures.update((row, self._submit(row, doing, call)) for row, call in calls.items())
            late = wait(futures.values(), timeout, ALL_COMPLETED if survives else FIRST_EXCEPTION).not_done
            for future in futures.values():
                if future not in late:
                    future.result()  # raises the error of the environment
            for row, future in futures.items():
                if future in late:
                    raise late_answer(row, timeout)
            return {row: future.result() for row, future in futures.items()}
        except WorkerError:
            if not survives or late:
                self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise
        except BaseException:
            # After Ctrl-C the environments finish the step, its data is dropped, and the batch stays usable.
            self.stop_unless(lambda: self._have_ended(futures), self._grace)
            raise

    def _have_ended(self, futures: dict[int, Future[Any]]) -> bool:
        """Wait until calls have ended; returns whether all did without an error."""
        late = wait(futures.values(), self._grace).not_done
        return not late and not any(future.exception() for future in futures.values())

    # -- the end --------------------------------------------------------------------------------------------------

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        self.stopped = True
        if self.owner != os.getpid():
            return  # a forked child has none of the threads, and its parent closes the environments
        if self._closing is None:
            self._closing = {}
            for row, executor in enumerate(self._executors):
                try:
                    self._closing[row] = executor.submit(self._close, row)
                except RuntimeError:  # the interpreter is shutting down and has ended the threads
                    self._close(row)
                executor.shutdown(wait=False)
        if threading.get_ident() in self._idents:
            return  # garbage collection runs in one of the threads, which cannot wait for itself
        wait(self._closing.values(), timeout)
        self.hung = [row for row, future in self._closing.items() if not future.done()]
        for row, executor in enumerate(self._executors):
            if row not in self.hung:
                executor.shutdown()  # joins a thread that has finished its work

    def _close(self, row: int) -> None:
        if row in self._shards:
            self._shards[row].close()


def _call(shard: ShardService, method: str, part: Any, *arguments: Any) -> dict[int, Any]:
    """Call a method of a shard of one environment."""
    results: dict[int, Any] = shard.call((method, {shard.first_row: part}, *arguments))
    if method != "exchange":
        return results
    # The caller may keep the data, and the environment may use its memory again.
    return {row: tuple(None if td is None else td.clone() for td in pair) for row, pair in results.items()}


def _raising(row: int, doing: str, call: Callable[[], Any]) -> Any:
    """Call a function, and raise its exceptions as WorkerErrors.

    Worker processes raise the same errors.
    """
    try:
        return call()
    except BaseException as error:
        raised = replace(Failure.of(error, doing), index=row).error("environment", row)
        raised.__cause__ = error.__cause__ if isinstance(error, ItemError) else error
    raise raised
