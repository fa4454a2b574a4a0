"""Backend with a thread for each environment, in which it is made, stepped and closed."""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, ClassVar

from steppe.batched.attributes import ask_row
from steppe.batched.backends.base import AsyncBackend, AwaitedCall, stopped_batch
from steppe.batched.batch_layout import make_envs, report
from steppe.batched.flags import Flags
from steppe.batched.loose_entries import Key, Reports
from steppe.batched.operations import STEP_AND_RESET, has_arguments, perform, seed_rows
from steppe.batched.shard import Shard
from steppe.batched.turn import Turn
from steppe.batched.unbuffered import run_rows
from steppe.errors import WorkerError, WorkerTimeout
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import (
    AFTER_AN_ERROR,
    SHUTDOWN_TIMEOUT,
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    Failure,
    interrupted,
    other_process,
    uninterrupted,
)

__all__ = ["Threads"]


class Threads(AsyncBackend):
    """Steps each environment in a thread; see :class:`~steppe.batched.backends.base.AsyncBackend`.

    Args:
        change: the lock that callers hold; it is notified when an environment has finished.
        factories: a factory for each row.
        step_timeout: seconds that a step or reset may take, or None.

    Attributes:
        hung: rows whose environment was still in a call when the threads were stopped.
    """

    outlives: ClassVar[bool] = True

    def __init__(self, change: Turn, factories: list[Callable[[], Any]], *, step_timeout: float | None = None) -> None:
        n = len(factories)
        self._change, self._step_timeout = change, step_timeout
        # Executors end their idle threads when they are garbage collected, and at the end of the interpreter.
        self._executors = [ThreadPoolExecutor(1, thread_name_prefix=f"steppe-env-{row}") for row in range(n)]
        self._envs: list[Any] = [None] * n
        self._shards: list[Shard] | None = None
        self._idents: set[int] = set()
        self._closing: dict[int, Future[Any]] | None = None
        self._owner = os.getpid()
        self.stopped, self._why = False, AFTER_AN_ERROR
        self._grace = SHUTDOWN_TIMEOUT if step_timeout is None else min(SHUTDOWN_TIMEOUT, step_timeout)
        self.hung: list[int] = []
        try:
            self._make(factories)
            self.reports = [report(env) for env in self._envs]
        except BaseException:
            self.stop(SHUTDOWN_TIMEOUT)
            raise

    def _make(self, factories: list[Callable[[], Any]]) -> None:
        """Make the first environment alone, because it imports the library, then the others at the same time."""
        self._submit(0, self._making(0, factories[0])).result()
        rest = [self._submit(row, self._making(row, make)) for row, make in enumerate(factories) if row]
        wait(rest)
        for future in rest:
            future.result()

    def _making(self, row: int, make: Callable[[], Any]) -> Callable[[], None]:
        context = contextvars.copy_context()  # library backends that the caller has set

        def run() -> None:
            self._idents.add(threading.get_ident())
            self._envs[row] = context.run(make_envs, [make], row)[0]

        return _raising(row, "__init__", run)

    def _submit(self, row: int, call: Callable[[], Any]) -> Future[Any]:
        """Call a function in the thread of a row, once the thread is free."""
        return self._executors[row].submit(call)

    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        storage, self._flags = Storage(row, (n,), kind="shared" if staged else "plain"), Flags(n)
        self._shards = [Shard([env], storage, self._flags, at) for at, env in enumerate(self._envs)]
        return storage, self._flags

    def check(self, name: str) -> None:
        if self.stopped:
            raise stopped_batch(name, self._why)
        if self._owner != os.getpid():
            raise other_process(name, self._owner)

    # -- one environment ------------------------------------------------------------------------------------------

    def _job(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None = None) -> Callable[[], Any]:
        """Return a function that steps or resets an environment, in storage or on the data of ``message``."""
        env, shard = self._envs[row], self._shards[row] if self._shards is not None else None

        def run() -> Any:
            if message is not None:
                result = run_rows(op, {row: env}, {row: message})[row]
                return tuple(td.clone() if td is not None else None for td in result)
            assert shard is not None
            perform(shard, op, None)
            return None

        return _raising(row, "step", run)

    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> Future[Any]:
        future = self._submit(row, self._job(row, op, message))
        change = self._change

        def ended(_: Any) -> None:
            with change.lock:
                change.notify_all()

        future.add_done_callback(ended)
        return future

    def ended(self, ticket: Future[Any]) -> bool:
        return ticket.done()

    def result(self, ticket: Future[Any]) -> Any:
        return ticket.result()

    def wait(self, calls: Mapping[int, AwaitedCall], timeout: float | None) -> BaseException | None:
        self._change.wait(timeout)
        return None

    # -- all environments -----------------------------------------------------------------------------------------

    def run(self, op: int, rows: list[int] | None) -> int:
        chosen = range(len(self._envs)) if rows is None else rows
        self._all({row: self._job(row, op) for row in chosen})
        return int(self._flags.was_reset[list(chosen)].sum()) if op == STEP_AND_RESET else 0

    def take_loose(self) -> Reports:
        reports: Reports = {}
        for shard in self._shards or ():
            if shard.loose is not None:
                reports.update(shard.loose.take())
        return reports

    def set_loose(self, inputs: dict[int, dict[Key, object]]) -> None:
        for row, values in inputs.items():
            if self._shards is not None and (loose := self._shards[row].loose) is not None:
                loose.set_inputs({row: values})

    def exchange(self, op: int, data: dict[int, Any]) -> dict[int, Any]:
        calls = {row: self._job(row, op, given) for row, given in data.items()}
        return self._all(calls, survives=has_arguments(op, data))

    def _all(self, calls: dict[int, Callable[[], Any]], *, survives: bool = False) -> dict[int, Any]:
        """Call functions in threads and wait for all. An error stops the backend, unless ``survives`` is set."""
        futures: dict[int, Future[Any]] = {}
        try:
            with uninterrupted():
                futures.update((row, self._submit(row, call)) for row, call in calls.items())
            until = ALL_COMPLETED if survives else FIRST_EXCEPTION
            pending = wait(futures.values(), self._step_timeout, until).not_done
            for row, future in futures.items():
                if future in pending and not any(one.done() and one.exception() for one in futures.values()):
                    raise WorkerTimeout(
                        f"Worker {row}, at work on environment {row}, did not answer within {self._step_timeout} s.",
                        worker=row,
                        env=row,
                    )
            for future in futures.values():
                if future.done():
                    future.result()
            return {row: future.result() for row, future in futures.items()}
        except WorkerError:
            if not (survives and all(future.done() for future in futures.values())):
                self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise
        except BaseException:
            # After Ctrl-C the environments finish the step, its data is dropped, and the batch stays usable.
            usable = False
            try:
                pending = wait(futures.values(), self._grace).not_done
                usable = not pending and not any(future.exception() for future in futures.values())
            finally:
                if not usable:
                    self._why = interrupted("environment", self._grace)
                    self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            raise

    def ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        return self._in_threads(
            {row: partial(ask_row, env, row, path, calls[row]) for row, env in enumerate(self._envs)}, "an attribute"
        )

    def seed(self, seeds: dict[int, Any]) -> None:
        envs = dict(enumerate(self._envs))
        self._in_threads({row: partial(seed_rows, envs, {row: seed}) for row, seed in seeds.items()}, "set_seed")

    def _in_threads(self, calls: dict[int, Callable[[], Any]], doing: str) -> list[Any]:
        """Call functions in threads and wait for all; an error does not stop the backend."""
        futures = [self._submit(row, _raising(row, doing, call)) for row, call in calls.items()]
        wait(futures)
        return [future.result() for future in futures]

    # -- the end --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        pass  # a thread cannot be killed

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        self.stopped = True
        if self._owner != os.getpid():
            return  # a forked child has none of the threads, and its parent closes the environments
        if self._closing is None:
            self._closing = {}
            for row, (executor, env) in enumerate(zip(self._executors, self._envs, strict=True)):
                try:
                    self._closing[row] = executor.submit(_close, env)
                except RuntimeError:  # the interpreter is shutting down and has ended the threads
                    _close(env)
                executor.shutdown(wait=False)
        if threading.get_ident() in self._idents:
            return  # garbage collection runs in one of the threads, which cannot wait for itself
        end = time.monotonic() + timeout
        wait(self._closing.values(), timeout)
        self.hung = [row for row, future in self._closing.items() if not future.done()]
        for row, executor in enumerate(self._executors):
            if row not in self.hung and time.monotonic() < end + SHUTDOWN_TIMEOUT:
                executor.shutdown(wait=True)


def _raising(row: int, doing: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function whose exceptions are WorkerErrors, as those of a worker process are."""

    def run() -> Any:
        try:
            return call()
        except BaseException as error:
            failure = Failure.of(error, doing)
            cause = error.__cause__ if failure.index is not None else error
            raised = Failure(failure.doing, row, failure.summary, failure.traceback).error("environment", row)
            raised.__cause__ = cause
        raise raised

    return run


def _close(env: Any) -> None:
    try:
        if env is not None:
            env.close(raise_if_closed=False)
    except Exception:
        pass
