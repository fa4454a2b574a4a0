"""PendingCalls: the calls of a pool that were sent and not received."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensordict import TensorDictBase

from steppe.batched import RESET, STEP, STEP_AND_RESET
from steppe.errors import StateError, WorkerError, WorkerTimeout
from steppe.workers import AFTER_AN_ERROR, uninterrupted
from steppe_pools.async_backend import AsyncBackend, late_answer
from steppe_pools.turn import Turn

if TYPE_CHECKING:
    from steppe_pools.pool_data import PoolData

__all__ = ["NAMES", "Message", "PendingCall", "PendingCalls"]

#: Operations, and the names that the methods for sending and receiving contain.
NAMES = {STEP: "step", RESET: "reset", STEP_AND_RESET: "step_and_maybe_reset"}

#: The data of one environment and the keyword arguments of its reset, if data is not in storage.
Message = tuple[TensorDictBase | None, dict[str, object]]


@dataclass
class PendingCall:
    """One call of one environment, from sending to receiving.

    Attributes:
        op: the operation, a key of ``NAMES``.
        data: a copy of the row that was sent; None for a reset without data.
        since: when it was sent, by the monotonic clock.
        ended: whether the environment has finished.
        outcome: ``next`` and the following root, each None if it is in storage.
    """

    op: int
    data: TensorDictBase | None
    since: float
    ended: bool = False
    outcome: tuple[TensorDictBase | None, TensorDictBase | None] = (None, None)


class PendingCalls:
    """The calls of a pool that were sent and not received.

    Args:
        step_timeout: seconds that an environment may take for a call, or None.

    Attributes:
        by_row: the pending call of each environment that has one; those that were sent first come first.
        change: the lock that guards ``by_row``. It is notified when a call has ended.
        stopped: the reason why the pool must be stopped; empty while it can be used.
        backend: steps the environments; None before the pool starts.
        data: writes their inputs and reads their results. Set when the pool starts.
    """

    backend: AsyncBackend | None
    data: PoolData

    def __init__(self, step_timeout: float | None) -> None:
        self.step_timeout = step_timeout
        self.by_row: dict[int, PendingCall] = {}
        self.change = Turn()
        self.stopped = ""
        self.backend = None

    def __reduce__(self) -> tuple[type[PendingCalls], tuple[float | None]]:
        return PendingCalls, (self.step_timeout,)  # a copy of a pool has no calls

    def check_free(self, rows: Iterable[int], what: str) -> None:
        """Raise StateError if one of the environments has a pending call."""
        for row in rows:
            call = self.by_row.get(row)
            if call is not None:
                name = NAMES[call.op]
                raise StateError(
                    f"{what}: the last {name} of environment {row} was not received. Receive it first: "
                    f"async_{name}_recv(env_index={row})."
                )

    def send(self, op: int, inputs: dict[int, TensorDictBase | None]) -> None:
        """Send a call to environments, with the data of each by row.

        An error stops the pool.
        """
        backend, now = self.backend, time.monotonic()
        assert backend is not None
        try:
            for row, td in inputs.items():
                backend.order(row, op, self.data.write(op, row, td))
                self.by_row[row] = PendingCall(op, td, now)
        except BaseException as error:
            self._stop(error)
            raise

    def wait_for(
        self,
        op: int,
        requested: set[int] | None,
        *,
        least: int,
        most: int | None,
        timeout: float | None,
        check: Callable[[str], None],
    ) -> list[int]:
        """Wait until enough calls of ``op`` have ended; returns their rows, sorted.

        Args:
            op: the operation.
            requested: the rows to wait for; None for any.
            least: number of calls to wait for.
            most: return at most this many rows. With ``timeout``, wait for this many until then.
            timeout: seconds to wait at most, or None.
            check: function that raises an error if the pool is unusable; its argument is the name of the receiving
                method.

        Raises:
            StateError: fewer than ``least`` calls are pending.
            WorkerTimeout: fewer than ``least`` calls ended in time; or an environment exceeds ``step_timeout``, and the
                pool is stopped.
            WorkerError: an environment failed, and the pool is stopped.
        """
        what = f"async_{NAMES[op]}_recv"
        end = None if timeout is None else time.monotonic() + timeout
        wanted = least if end is None or most is None else most
        while True:
            check(what)
            rows = self._pending_rows(op, requested, least, what)
            backend = self.backend
            assert backend is not None  # the pool was started by the first of these calls
            try:
                self._collect(backend)
                ready = [row for row in rows if self.by_row[row].ended]
                if len(ready) >= min(wanted, len(rows)):
                    return sorted(ready[:most])
                remaining = self._remaining(end)
                if remaining is None or remaining > 0:
                    backend.wait(remaining)  # releases the lock while it waits
                    continue
            except WorkerError as error:
                self._stop(error)
                raise
            if len(ready) >= least:
                return sorted(ready[:most])
            busy = sorted(set(rows) - set(ready))
            raise WorkerTimeout(
                f"{what}: {len(ready)} of {least} {NAMES[op]}(s) ended within {timeout} s; environments {busy} are "
                "still busy. Nothing is lost: receive again, or pass a lower min_get.",
                worker=busy[0],
                env=busy[0],
            )

    def put_back(self, calls: dict[int, PendingCall]) -> None:
        """Keep ended calls that were not delivered, because Ctrl-C interrupted."""
        with self.change.lock:
            if not self.stopped:
                self.by_row = {**calls, **self.by_row}

    def drop(self) -> None:
        """Drop all calls, and wake the threads that wait for them."""
        with self.change.lock:
            self.by_row.clear()
            self.change.notify_all()

    def _stop(self, error: BaseException) -> None:
        after_error = isinstance(error, Exception)
        self.stopped = f"{AFTER_AN_ERROR} ({type(error).__name__})" if after_error else "interrupted while it sent work"
        self.drop()

    def _collect(self, backend: AsyncBackend) -> None:
        """Store the results of the calls that have ended."""
        with uninterrupted():  # a second Ctrl-C would lose these results
            for row, outcome in backend.collect().items():
                call = self.by_row[row]
                call.ended, call.outcome = True, outcome or (None, None)

    def _pending_rows(self, op: int, requested: set[int] | None, least: int, what: str) -> list[int]:
        rows = [row for row, call in self.by_row.items() if call.op == op and (requested is None or row in requested)]
        if len(rows) >= least:
            return rows
        name = NAMES[op]
        of = "" if requested is None else f" of environments {sorted(requested)}"
        count = f"{len(rows)} are" if rows else "none is"
        others = [(row, NAMES[call.op]) for row, call in sorted(self.by_row.items()) if call.op != op]
        hint = "".join(f" Environment {row} was sent a {other}." for row, other in others[:3])
        raise StateError(
            f"{what}: {least} {name}(s){of} requested, but {count} pending.{hint} Send first with async_{name}_send, "
            "or receive the pending calls."
        )

    def _remaining(self, end: float | None) -> float | None:
        """Return the seconds until the next deadline.

        Raises:
            WorkerTimeout: an environment has exceeded ``step_timeout``.
        """
        now = time.monotonic()
        deadlines = [] if end is None else [end]
        if self.step_timeout is not None:
            for row, call in self.by_row.items():
                if not call.ended:
                    deadlines.append(call.since + self.step_timeout)
                    if deadlines[-1] <= now:
                        raise late_answer(row, self.step_timeout)
        return min(deadlines) - now if deadlines else None
