"""AsyncProcesses: the backend of pools with a worker process for each environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from steppe.batched import Processes
from steppe.workers import SHUTDOWN_TIMEOUT
from steppe_pools.async_backend import AsyncBackend
from steppe_pools.turn import Turn

__all__ = ["AsyncProcesses"]


class AsyncProcesses(Processes, AsyncBackend):
    """Backend with a worker process for each environment.

    Args:
        change: the lock that callers hold; it is released during waits.
        factories: a factory for each row.
        **settings: for :class:`Processes`.
    """

    def __init__(self, change: Turn, factories: list[Callable[[], Any]], **settings: Any) -> None:
        self._change = change
        self._leading = False
        #: Whether the result of each pending row arrives in a message instead of storage.
        self._at_work: dict[int, bool] = {}
        super().__init__(factories, n_processes=len(factories), **settings)

    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> None:
        if message is None:
            self.pool.order(row, op)
        else:
            self.pool.call(row, ("exchange", {row: message}, op))
        self._at_work[row] = message is not None

    def collect(self) -> dict[int, Any]:
        pool, results = self.pool, {}
        for row, by_message in list(self._at_work.items()):
            if by_message and pool.has_message(row):
                del self._at_work[row]
                results[row] = pool.receive(row)[row]
            elif not by_message and pool.has_finished(row):
                del self._at_work[row]
                pool.order_result(row)  # raises the error of the environment
                results[row] = None
        return results

    def stop(self, timeout: float | None = None) -> None:
        end = time.monotonic() + SHUTDOWN_TIMEOUT
        with self._change.lock:
            while self._leading and time.monotonic() < end:
                # Another thread waits for the workers. Its waiter is closed below, so it must return first.
                self.pool.rouse()
                self._change.wait(0.1)
        super().stop(timeout)

    def wait(self, timeout: float | None) -> None:
        pool = self.pool
        if self._leading:
            # Another thread waits for the workers and notifies this one.
            self._change.wait(timeout)
            return
        if pool.control is not None and pool.gate.spin(self._some_order_ended):
            return
        self._leading = True
        try:
            heard = self._change.let_go(pool.wait_any, timeout)
        finally:
            self._leading = False
            self._change.notify_all()
        for row in heard:
            if not self._at_work.get(row):
                # Only an error or the end of the process can arrive as a message.
                pool.unexpected(row)

    def _some_order_ended(self) -> bool:
        pool = self.pool
        return any(not by_message and pool.has_finished(row) for row, by_message in self._at_work.items())
