"""ThreadingAsyncEnvPool: a pool whose environments have a thread each."""

from __future__ import annotations

import contextvars
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

from steppe.batched.async_pool import AsyncEnvPool
from steppe.batched.board import Flags
from steppe.batched.crew import PATIENCE, PATIENCE_AFTER_FAILURE, other_process
from steppe.batched.dispatch import ask_row
from steppe.batched.lanes import LaneError, Lanes
from steppe.batched.messages import run_rows
from steppe.batched.outlet import is_host
from steppe.batched.report import report
from steppe.batched.worker import describe
from steppe.errors import ClosedError, SpecError, WorkerError
from steppe.storage import Storage

__all__ = ["ThreadingAsyncEnvPool"]


class ThreadingAsyncEnvPool(AsyncEnvPool):
    """An :class:`AsyncEnvPool` whose environments are made, stepped and closed in a thread each.

    For environments that wait (for a network, a simulator, a compiled library that lets go of Python's lock) more than
    they compute: threads of Python compute one at a time.

    A thread cannot be stopped from outside. One whose environment hangs is left behind by ``close``, with a warning,
    after 5 seconds; it ends when the environment comes back, and keeps the interpreter from ending before.
    """

    backend = "threading"

    def _start_arguments(self, n: int, mp_start_method: str | None) -> dict[str, Any]:
        if mp_start_method is not None:
            raise SpecError('mp_start_method is for worker processes: leave it out, or use backend="multiprocessing".')
        return {}

    def _open(self) -> None:
        threads = _Threads(self.num_workers)
        self.__dict__["_threads"], self.__dict__["_finalizer"] = threads, weakref.finalize(self, threads.stop)
        try:
            threads.make(self._factories)
            row = self._adopt([report(env) for env in threads.envs])
            if row is not None:
                storage = Storage(row, (self.num_workers,), kind="plain" if is_host(self.device) else "shared")
                flags = Flags(self.num_workers)
                threads.lanes = [Lanes([env], storage, flags, at) for at, env in enumerate(threads.envs)]
                self._use(storage, flags)
        except BaseException:
            self._stop()
            raise

    def _staff(self) -> _Threads:
        threads: _Threads | None = self.__dict__.get("_threads")
        if threads is None:
            raise ClosedError(f"This {type(self).__name__} was stopped after an error: close it, make a new one.")
        if threads.owner != os.getpid():
            raise other_process(self, threads.owner)
        return threads

    def _check_usable(self, what: str) -> None:
        super()._check_usable(what)
        if self._running:
            self._staff()

    # -- asynchronous ---------------------------------------------------------------------------------------------

    def _order(self, row: int, op: str, message: tuple[Any, dict[str, Any]] | None) -> Any:
        threads = self._staff()
        future = threads.submit(row, threads.job(row, op, message))
        change = self._change

        def ended(_: Any) -> None:
            with change:
                change.notify_all()

        future.add_done_callback(ended)
        return future

    def _look(self) -> None:
        for job in self._jobs.values():
            if not job.ended and job.ticket.done():
                error = job.ticket.exception()
                if error is not None:
                    self.__dict__["_failure"] = error
                    return
                job.ended, job.outcome, job.ticket = True, job.ticket.result(), None

    def _await(self, timeout: float | None) -> None:
        self._change.wait(timeout)

    # -- as any environment ---------------------------------------------------------------------------------------

    def _all(self, calls: dict[int, Callable[[], Any]]) -> dict[int, Any]:
        """Have environments do something, and wait for all; after an error the pool is over."""
        threads = self._staff()
        try:
            futures = {row: threads.submit(row, call) for row, call in calls.items()}
            pending = wait(futures.values(), self.step_timeout, FIRST_EXCEPTION).not_done
            for row, future in futures.items():
                if future in pending and not any(one.done() and one.exception() for one in futures.values()):
                    raise self._too_late(row)
            for future in futures.values():
                if future.done():
                    future.result()
            return {row: future.result() for row, future in futures.items()}
        except BaseException:
            self._stop(PATIENCE_AFTER_FAILURE)
            raise

    def _run(self, op: str, rows: list[int] | None) -> int:
        wanted = range(self.num_workers) if rows is None else rows
        counts = self._all({row: self._staff().job(row, op) for row in wanted})
        return sum(int(self._flags.was_reset[row]) for row in counts) if op == "step_and_reset" else 0

    def _exchange(self, op: str, data: dict[int, Any]) -> dict[int, Any]:
        return self._all({row: self._staff().job(row, op, given) for row, given in data.items()})

    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        self._check_asked(path)
        threads = self._staff()
        futures = [threads.submit(row, _asking(threads.envs[row], row, path, call)) for row, call in enumerate(calls)]
        wait(futures)
        return [future.result() for future in futures]

    def _seed_rows(self, seeds: dict[int, Any]) -> None:
        threads = self._staff()
        jobs = [threads.submit(row, partial(threads.envs[row].set_seed, seed)) for row, seed in seeds.items()]
        for future in jobs:
            future.result()

    # -- life -----------------------------------------------------------------------------------------------------

    def _stop(self, patience: float = PATIENCE) -> None:
        finalizer = self.__dict__.pop("_finalizer", None)
        if finalizer is not None and finalizer.detach() is not None:
            threads, self.__dict__["_threads"] = self._threads, None
            if threads.stop(patience):
                self.__dict__["_left"] = threads
            self._forget_storage()

    def close(self, *, raise_if_closed: bool = False) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._stop()
        # Also what an error left behind.
        left = self.__dict__.pop("_left", None)
        hung = left.stop(PATIENCE) if left is not None else []
        if hung:
            warnings.warn(
                f"Environments {hung} did not come back within {PATIENCE:g} s, and a thread cannot be stopped: theirs "
                'run on. Use backend="multiprocessing" for environments that may hang.',
                RuntimeWarning,
                stacklevel=2,
            )


class _Threads:
    """A thread for each environment, which makes it, steps it and closes it."""

    def __init__(self, n: int) -> None:
        # Executors end idle threads when they are forgotten, and before the interpreter does.
        self.executors = [ThreadPoolExecutor(1, thread_name_prefix=f"steppe-env-{row}") for row in range(n)]
        self.envs: list[Any] = [None] * n
        self.lanes: list[Lanes] | None = None
        self.idents: set[int] = set()
        self.closing: dict[int, Future[Any]] | None = None
        self.owner = os.getpid()

    def submit(self, row: int, call: Callable[[], Any]) -> Future[Any]:
        """Have a thread call something once it is free."""
        return self.executors[row].submit(call)

    def make(self, factories: list[Callable[[], Any]]) -> None:
        """Make the environments: the first alone, because it imports the library, then the others at once.

        Raises:
            WorkerError: the first of those that raised.
        """
        self.submit(0, self._making(0, factories[0])).result()
        rest = [self.submit(row, self._making(row, make)) for row, make in enumerate(factories) if row]
        wait(rest)
        for future in rest:
            future.result()

    def _making(self, row: int, make: Callable[[], Any]) -> Callable[[], None]:
        context = contextvars.copy_context()  # the backends that were set for this part of the caller's program

        def run() -> None:
            self.idents.add(threading.get_ident())
            try:
                self.envs[row] = context.run(make)
            except BaseException as error:
                raise _failed(row, "__init__", error) from error

        return run

    def job(self, row: int, op: str, message: tuple[Any, dict[str, Any]] | None = None) -> Callable[[], Any]:
        """A call that steps or resets an environment: in its row of storage, or on the data of ``message``.

        It returns what :func:`~steppe.batched.messages.run_rows` does for the row; None where data is in storage.
        """
        env, lanes = self.envs[row], self.lanes[row] if self.lanes is not None else None

        def run() -> Any:
            try:
                if message is not None:
                    found = run_rows(op, {row: env}, {row: message})[row]
                    return tuple(td.clone() if td is not None else None for td in found)
                assert lanes is not None
                if op in ("reset", "reset_on_data"):
                    lanes.reset([0], on_data=op == "reset_on_data")
                else:
                    lanes.step(reset=op == "step_and_reset")
                return None
            except LaneError as error:
                raise _failed(row, error.doing, error.__cause__) from error.__cause__
            except BaseException as error:
                raise _failed(row, op, error) from error

        return run

    def stop(self, patience: float = PATIENCE) -> list[int]:
        """Close the environments, each in its thread, and end the threads.

        Args:
            patience: seconds to wait for those that are at work.

        Returns:
            The environments that are at work still. They are closed when they come back.
        """
        if self.owner != os.getpid():
            return []  # a forked child has no threads, and the environments are its parent's
        if self.closing is None:
            self.closing = {}
            for row, (executor, env) in enumerate(zip(self.executors, self.envs, strict=True)):
                try:
                    self.closing[row] = executor.submit(_close, env)
                except RuntimeError:  # the interpreter is about to end, and threads have ended already
                    _close(env)
                executor.shutdown(wait=False)
        if threading.get_ident() in self.idents:
            return []  # garbage collection happened to run in one of the threads, which cannot wait for itself
        end = time.monotonic() + patience
        wait(self.closing.values(), patience)
        hung = [row for row, future in self.closing.items() if not future.done()]
        for row, executor in enumerate(self.executors):
            if row not in hung and time.monotonic() < end + PATIENCE:
                executor.shutdown(wait=True)
        return hung


def _close(env: Any) -> None:
    try:
        if env is not None:
            env.close(raise_if_closed=False)
    except Exception:
        pass


def _asking(env: Any, row: int, path: tuple[str, ...], call: Any) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return ask_row(env, row, path, call)
        except LaneError as error:
            raise _failed(row, error.doing, error.__cause__) from error.__cause__

    return run


def _failed(row: int, doing: str, cause: BaseException | None) -> WorkerError:
    summary, text = describe(cause)
    return WorkerError(
        f"Worker {row} raised in {doing} of environment {row}: {summary}\n\n{text}",
        worker=row,
        env=row,
        remote_traceback=text,
    )
