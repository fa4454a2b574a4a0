"""What a pool has under way: who is at work, who has ended, and how long the others may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDictBase

from steppe.batched.backends.base import AsyncBackend
from steppe.batched.operations import RESET, STEP, STEP_AND_RESET
from steppe.batched.turn import Turn
from steppe.errors import StateError, WorkerTimeout
from steppe.workers import AFTER_AN_ERROR, uninterrupted

__all__ = ["NAMES", "AsyncWork", "Job", "Order"]

#: Operations, and what the methods that send and receive them are called.
NAMES = {STEP: "step", RESET: "reset", STEP_AND_RESET: "step_and_maybe_reset"}

#: What the backend is told: the operation, and the message where data is not in storage.
Order = tuple[int, tuple[Any, dict[str, Any]] | None]


@dataclass
class Job:
    """What one environment was sent, until it is received.

    Attributes:
        op: ``"step"``, ``"reset"`` or ``"step_and_reset"``.
        data: the row that was sent, a copy; None for a reset without data.
        since: when, by the monotonic clock.
        ticket: how the backend knows it again.
        ended: whether the environment has done it.
        outcome: ``next`` and following root where data travels in messages; None where it is in storage.
    """

    op: int
    data: TensorDictBase | None
    since: float
    ticket: Any = None
    ended: bool = False
    outcome: Any = None


class AsyncWork:
    """The work of an :class:`~steppe.batched.AsyncEnvPool`: what is under way, and what has ended.

    Args:
        step_timeout: seconds that an environment may be at work, or None.

    Attributes:
        jobs: what each environment at work was sent, by row.
        change: its lock is held by whoever reads or writes ``jobs``; told when something has ended.
        failure: the first error of an environment that nobody was told yet.
        stopped: what has ended it; empty while it goes on.
        backend: steps the environments; there from the start of the pool on.
    """

    backend: AsyncBackend

    def __init__(self, step_timeout: float | None) -> None:
        self.step_timeout = step_timeout
        self.jobs: dict[int, Job] = {}
        self.change = Turn()
        self.failure: BaseException | None = None
        self.stopped = ""

    def check_free(self, rows: Iterable[int], what: str) -> None:
        """Raise StateError where one of the environments is at work, or its result was not received."""
        for row in rows:
            job = self.jobs.get(row)
            if job is not None:
                name = NAMES[job.op]
                raise StateError(
                    f"{what}: environment {row} was sent a {name} that was not received. Receive it first: "
                    f"async_{name}_recv(env_index={row})."
                )

    def begin(
        self, op: int, sent: dict[int, TensorDictBase | None], write: Callable[..., Order]
    ) -> BaseException | None:
        """Set environments to work; returns the error where one could not be.

        Args:
            op: the operation.
            sent: the data of each, by row.
            write: called as ``write(op, row, data)``: puts a row into storage, and says what to order.
        """
        now = time.monotonic()
        try:
            for row, td in sent.items():
                self.jobs[row] = Job(op, td, now, self.backend.order(row, *write(op, row, td)))
        except BaseException as error:
            return error
        return None

    def wait_for(
        self,
        op: int,
        asked: set[int] | None,
        *,
        least: int,
        most: int | None,
        timeout: float | None,
        check: Callable[[str], None],
    ) -> list[int] | None:
        """The rows whose ``op`` has ended, sorted, once there are enough; None after an error, which is in ``failure``.

        Args:
            op: the operation.
            asked: the rows to wait for; None for any.
            least: how many to wait for.
            most: at most as many are returned; with ``timeout`` too, as many are waited for until then.
            timeout: seconds to wait at most, or None.
            check: raises where the pool cannot be used any more; takes the name of the call.

        Raises:
            StateError: fewer than ``least`` are under way.
            WorkerTimeout: fewer than ``least`` have ended in time.
        """
        what = f"async_{NAMES[op]}_recv"
        end = None if timeout is None else time.monotonic() + timeout
        # Who names both a most and a time collects until one of them is reached.
        wanted = least if end is None or most is None else most
        while True:
            check(what)
            rows = self._under_way(op, asked, least, what)
            self._look()
            if self.failure is not None:
                return None
            ready = [row for row in rows if self.jobs[row].ended]
            if len(ready) >= min(wanted, len(rows)):
                return self._first(ready, most)
            limit = self._limit(end)
            if self.failure is not None:
                return None
            if len(ready) >= least and end is not None and time.monotonic() >= end:
                return self._first(ready, most)
            if limit is not None and limit <= 0:
                busy = [row for row in rows if row not in ready]
                raise WorkerTimeout(
                    f"{what}: {len(ready)} of {least} {NAMES[op]}(s) ended within {timeout} s; environments {busy} "
                    "are at work. Nothing is lost: receive again, with a lower min_get for what has ended.",
                    worker=busy[0],
                    env=busy[0],
                )
            failure = self.backend.wait(self.jobs, limit)  # lets go of what is held meanwhile
            self.failure = self.failure or failure

    def put_back(self, jobs: dict[int, Job]) -> None:
        """Keep jobs that have ended and were not delivered after all."""
        with self.change.lock:
            if not self.stopped:
                self.jobs.update(jobs)

    def stop(self, error: BaseException) -> None:
        """Forget everything, after an error."""
        with self.change.lock:
            after_error = isinstance(error, Exception)
            self.stopped = (
                f"{AFTER_AN_ERROR} ({type(error).__name__})" if after_error else "interrupted while it sent work"
            )
            self.failure = None
            self.jobs.clear()
            self.change.notify_all()

    def _look(self) -> None:
        """Mark the jobs that have ended; put the first error in ``failure``."""
        if self.failure is not None:
            # Its message has been read, though the word that announces it may have come only now.
            return
        for job in self.jobs.values():
            if not job.ended and self.backend.ended(job.ticket):
                with uninterrupted():
                    try:
                        job.outcome = self.backend.result(job.ticket)
                    except Exception as error:
                        self.failure = error
                        return
                    job.ended, job.ticket = True, None

    def _first(self, ready: list[int], most: int | None) -> list[int]:
        """Those that were sent first, where there are more than are wanted."""
        if most is None or len(ready) <= most:
            return ready
        return sorted(sorted(ready, key=lambda row: self.jobs[row].since)[:most])

    def _under_way(self, op: int, asked: set[int] | None, least: int, what: str) -> list[int]:
        rows = sorted(row for row, job in self.jobs.items() if job.op == op and (asked is None or row in asked))
        if len(rows) >= least:
            return rows
        name = NAMES[op]
        of = "" if asked is None else f" of environments {sorted(asked)}"
        found = f"{len(rows)} are" if rows else "none is"
        others = [(row, NAMES[job.op]) for row, job in sorted(self.jobs.items()) if job.op != op]
        hint = "".join(f" Environment {row} was sent a {other}." for row, other in others[:3])
        raise StateError(
            f"{what}: {least} {name}(s){of} asked for, but {found} under way.{hint} "
            f"Send first, with async_{name}_send, or receive what was sent."
        )

    def _limit(self, end: float | None) -> float | None:
        """Seconds until something must have happened; sets ``failure`` where an environment is too late."""
        now = time.monotonic()
        limit = None if end is None else end - now
        if self.step_timeout is None:
            return limit
        for row, job in self.jobs.items():
            if not job.ended:
                left = job.since + self.step_timeout - now
                if left <= 0:
                    self.failure = self._too_late(row)
                limit = left if limit is None else min(limit, left)
        return limit

    def _too_late(self, row: int) -> WorkerTimeout:
        return WorkerTimeout(
            f"Worker {row}, at work on environment {row}, did not answer within {self.step_timeout} s.",
            worker=row,
            env=row,
        )
