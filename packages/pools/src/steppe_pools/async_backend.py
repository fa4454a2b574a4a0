"""AsyncBackend: the base class of backends that do not wait for environments."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from steppe.batched import Backend
from steppe.errors import WorkerTimeout

__all__ = ["AsyncBackend", "late_answer"]


def late_answer(row: int, timeout: float | None) -> WorkerTimeout:
    """Return the error for an environment that did not answer in time.

    The environment has a separate worker.
    """
    return WorkerTimeout(
        f"Worker {row}, at work on environment {row}, did not answer within {timeout} s.", worker=row, env=row
    )


class AsyncBackend(Backend):
    """A backend that can step single environments without waiting for them.

    Each environment runs one operation at a time.
    """

    @abstractmethod
    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> None:
        """Start an operation of one environment, with inputs in storage or in ``message``."""

    @abstractmethod
    def collect(self) -> dict[int, Any]:
        """Return the results of operations since the last call, by row.

        A result is ``next`` and the following root, or None if they are in storage.

        Raises:
            WorkerError: an operation raised.
        """

    @abstractmethod
    def wait(self, timeout: float | None) -> None:
        """Sleep until an operation may have ended.

        The caller holds the lock of the ``Turn`` that the backend was made with; it is released during the wait.

        Raises:
            WorkerError: the worker of an environment without an operation has ended.
        """
