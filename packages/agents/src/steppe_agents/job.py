"""A request that is being run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from steppe.errors import StateError
from steppe.workers import exclusive, uninterrupted
from steppe_agents.trajectories import Trajectories

if TYPE_CHECKING:
    from steppe_agents.requests import Requests

__all__ = ["Job"]


class Job:
    """A request that is being run.

    Args:
        requests: what runs it.
        total: rows.
        shape: of the request.
    """

    def __init__(self, requests: Requests, total: int, shape: torch.Size) -> None:
        self._requests, self.total, self.shape = requests, total, shape
        self.in_use = requests.in_use
        self._fetched = 0
        self._parts: list[Trajectories] = []
        self._over = self._cancelled = False

    @exclusive("a job")
    def _advance(self, timeout: float | None) -> bool:
        if self._over:
            return True
        try:
            over = self._requests.runner.advance(timeout)
        except BaseException as error:
            # What was running is lost; another request may be made, where there is still someone to run it. Who only
            # waited for others may go on after Ctrl-C.
            if isinstance(error, Exception) or not self._requests.runner.waits:
                self._over = True
                self._requests.broke_off()
            raise
        with uninterrupted():
            taken, self._requests.runner.parts = self._requests.runner.parts, []
            self._parts += taken
            if over:
                self._over = True
                self._requests.ended()
        return self._over

    @property
    def waits_to_be_taken(self) -> bool:
        """Whether all rows have ended, and some have not been taken."""
        return bool(self._parts) and self._ended_rows() == self.total

    def _ended_rows(self) -> int:
        return self._fetched + sum(part.length.numel() for part in self._parts)

    def done(self) -> bool:
        """Whether all rows have ended; never waits."""
        return self._advance(0)

    def progress(self) -> tuple[int, int]:
        """How many rows have ended, and how many there are; never waits."""
        self._advance(0)
        return self._ended_rows(), self.total

    def result(self, timeout: float | None = None) -> Trajectories:
        """Wait for all rows, and return those that ``partial`` has not; in request order, and in its shape.

        Args:
            timeout: seconds to wait at most. The job goes on after a ``TimeoutError``.

        Raises:
            TimeoutError: it is not done.
            StateError: it was cancelled, or all rows were taken.
            WorkerError: a worker raised, or ended.
        """
        if self._cancelled:
            raise StateError("This job was cancelled: partial() returns the rows that had ended.")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._advance(None if end is None else max(end - time.monotonic(), 0.0)):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"{self.progress()[0]} of {self.total} rows had ended after {timeout} s.")
        found: Any = None
        try:
            found = self.partial()
            if found is None:
                raise StateError("All rows of this job were taken by partial().")
            whole = len(found) == self.total and len(self.shape) != 1
            return found.reshape(self.shape) if whole else found  # type: ignore[no-any-return]
        except BaseException:
            if found is not None:  # it was interrupted: the rows can be taken again
                self._parts, self._fetched = [found], self._fetched - len(found)
            raise

    def partial(self) -> Trajectories | None:
        """Rows that have ended since the last call, each once, ``row`` says which; None where there are none."""
        if not self._cancelled:
            self._advance(0)
        if not self._parts:
            return None
        found: Any = Trajectories.cat(self._parts)
        found = found[found.row.argsort()]
        n = len(found)
        self._parts, self._fetched = [], self._fetched + n
        return found  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Stop at the next step; rows that have ended stay to be taken by ``partial``."""
        if self._over:
            return
        self._requests.runner.cancel()
        self._advance(None)
        self._over = self._cancelled = True
