"""Job: a request in progress, and its result."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from steppe.errors import StateError, SteppeError
from steppe.workers import exclusive, uninterrupted
from steppe_agents.trajectories import Trajectories

if TYPE_CHECKING:
    from steppe_agents.requests import Requests

__all__ = ["Job"]


#: Seconds that ``cancel`` waits for the current step of workers.
_CANCEL_WAIT = 1.0


class Job:
    """A request in progress, as ``Collector.execute`` returns it.

    >>> import torch
    >>> from steppe import CategoricalActor, Collector
    >>> actor = CategoricalActor(torch.nn.Linear(4, 2))
    >>> with Collector("gym:CartPole-v1", actor, frames_per_batch=100, seed=0) as collector:
    ...     job = collector.execute(n_episodes=3)
    ...     trajectories = job.result()
    ...     job.done(), job.progress(), len(trajectories)
    (True, (3, 3), 3)

    Args:
        requests: the requests of the collector.
        total: number of rows.
        shape: the batch size of the request.
    """

    def __init__(self, requests: Requests, total: int, shape: torch.Size) -> None:
        self._requests, self.total, self.shape = requests, total, shape
        self.in_use = requests.in_use
        self._fetched = 0
        self._parts: list[Trajectories] = []
        self._over = self._cancelled = False
        self._error: BaseException | None = None

    @exclusive("a job")
    def _advance(self, timeout: float | None) -> bool:
        """Work on the request, or wait for workers; return whether all rows have ended."""
        if self._over:
            return True
        try:
            self._requests.check_open()
        except SteppeError:
            if self._ended_rows() < self.total:
                raise
            self._over = True  # only the last reports of workers are missing
            return True
        try:
            over = self._requests.runner.advance(timeout)
        except BaseException as error:
            # The running rows are lost, and the caller may start another request. After Ctrl-C the job continues if
            # workers run the rows, because this process only waited for them.
            if isinstance(error, Exception) or not self._requests.runner.waits:
                self._over, self._error = True, error
                self._requests.failed()
            raise
        finally:
            with uninterrupted():  # after an error too: some rows may have ended before
                taken, self._requests.runner.parts = self._requests.runner.parts, []
                self._parts += taken
        if over:
            with uninterrupted():
                self._over = True
                self._requests.ended()
        return self._over

    @property
    def waits_to_be_taken(self) -> bool:
        """Whether rows have ended that were not fetched."""
        return bool(self._parts)

    def settle(self) -> None:
        """Wait for the last reports of workers, if all rows have ended: the rows come before the report does."""
        if not self._over and self._ended_rows() == self.total:
            self._advance(None)

    def _ended_rows(self) -> int:
        return self._fetched + sum(part.length.numel() for part in self._parts)

    def done(self) -> bool:
        """Return whether all rows have ended, without waiting."""
        return self._all_ended(0)

    def _all_ended(self, timeout: float | None) -> bool:
        """Work on the request, or wait for workers, unless all rows have ended; return whether they have.

        The rows of workers come before their last reports, which the next request waits for.
        """
        return self._ended_rows() == self.total or self._advance(timeout) or self._ended_rows() == self.total

    def progress(self) -> tuple[int, int]:
        """Return the numbers of ended rows and of all rows, without waiting."""
        self._all_ended(0)
        return self._ended_rows(), self.total

    def result(self, timeout: float | None = None) -> Trajectories:
        """Wait for all rows, and return them in the order and shape of the request.

        Rows that ``partial`` has returned are left out.

        Args:
            timeout: maximum time to wait, in seconds. The job continues after a ``TimeoutError``.

        Raises:
            TimeoutError: some rows have not ended.
            StateError: the job was cancelled, or ``partial`` has returned all rows.
            WorkerError: a worker raised an error, or died.
        """
        if self._cancelled:
            raise StateError("This job was cancelled: partial() returns the rows that had ended.")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._all_ended(None if end is None else max(end - time.monotonic(), 0.0)):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"{self._ended_rows()} of {self.total} rows had ended after {timeout} s.")
        rows: Any = None
        try:
            rows = None if self._error is not None and self._ended_rows() < self.total else self.partial()
            if rows is None:
                self._raise_nothing_left()
            whole = len(rows) == self.total and len(self.shape) != 1
            return rows.reshape(self.shape) if whole else rows  # type: ignore[no-any-return]
        except BaseException:
            if rows is not None:  # after Ctrl-C the rows can be fetched again
                self._parts, self._fetched = [rows], self._fetched - len(rows)
            raise

    def _raise_nothing_left(self) -> NoReturn:
        if self._error is not None:
            self._requests.check_open()  # after the error of a worker, this raises it again
            raise StateError(
                f"This job ended with an error: {self._error!r}. partial() returns the rows that had ended."
            ) from self._error
        raise StateError("All rows of this job were taken: get(), result() and partial() return each row once.")

    @exclusive("a job")
    def partial(self) -> Trajectories | None:
        """Return the rows that have ended since the last call, or None.

        ``row`` has their indices in the request. Rows that this process knows of are returned at once; otherwise the
        job is run for a moment, or the reports of workers are received.
        """
        if not self._cancelled and not self._parts:
            self._advance(0)
        if not self._parts:
            return None
        rows: Any = Trajectories.cat(self._parts)
        if bool((rows.row[1:] < rows.row[:-1]).any()):
            rows = rows[rows.row.argsort()]
        n = len(rows)
        self._parts, self._fetched = [], self._fetched + n
        return rows  # type: ignore[no-any-return]

    @exclusive("a job")
    def cancel(self) -> None:
        """Stop at the next step. ``partial`` still returns the rows that have ended.

        This waits for the current step of workers, but not longer than a second. If a worker is then still in its step,
        the next request waits for it. A job whose rows have all ended is not changed.
        """
        self.settle()
        if self._over:
            return
        with uninterrupted():  # otherwise result() would return a part of the rows after Ctrl-C
            self._cancelled = True
            self._requests.ends_later()
            self._requests.runner.cancel()
        try:
            self._advance(_CANCEL_WAIT)
        finally:
            self._over = True
