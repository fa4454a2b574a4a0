"""Backends of batches: they make, step and close the environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import torch

from steppe.batched.batch_layout import EnvReport
from steppe.batched.flags import Flags
from steppe.batched.loose_entries import Key, Reports
from steppe.errors import ClosedError
from steppe.specs import Composite
from steppe.storage import Storage

__all__ = ["AsyncBackend", "AwaitedCall", "Backend", "stopped_batch"]


def stopped_batch(name: str, why: str) -> ClosedError:
    """Return the error for using a batch whose backend was stopped.

    Args:
        name: of the batch's class.
        why: ``AFTER_AN_ERROR``, or the result of ``interrupted``.
    """
    return ClosedError(f"This {name} was {why}: close it, and make a new one.")


class Backend(ABC):
    """Base class of backends, which make, step and close the environments of a batch.

    Attributes:
        reports: the report of each environment, by row.
        outlives: whether it has processes or threads that must be stopped when the batch is garbage collected.
        stopped: whether ``stop`` was called, or an error has stopped it.
    """

    reports: list[EnvReport]
    outlives: ClassVar[bool]
    stopped: bool

    @abstractmethod
    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        """Make the storage of ``n`` rows that the environments write; ``staged``: data leaves it as one block."""

    @abstractmethod
    def check(self, name: str) -> None:
        """Raise an error if the batch cannot be used: it was stopped, or belongs to another process.

        Args:
            name: of the batch's class, for the error.
        """

    @abstractmethod
    def run(self, op: int, rows: list[int] | None) -> int:
        """Carry out an operation on rows of storage, None for all; returns how many were reset."""

    @abstractmethod
    def take_loose(self) -> Reports:
        """Return the loose entries that changed since the last call, of the rows whose flag says so."""

    @abstractmethod
    def set_loose(self, inputs: dict[int, dict[Key, object]]) -> None:
        """Pass loose entries that the caller has changed to the environments, by row and key."""

    def decoder(self) -> Callable[[torch.Tensor], list[Any] | None] | None:
        """Return a function that decodes the only action of all rows, ``[n, *shape]``, for :meth:`step_decoded`.

        None, the default, if actions go through storage, because other processes or threads read them.
        """
        return None

    def step_decoded(self, actions: list[Any], rows: list[int] | None, *, reset: bool) -> int:
        """Step rows, None for all, with library actions from :meth:`decoder`; returns how many rows were reset.

        Args:
            actions: one for each of the rows.
            rows: which rows.
            reset: begin an episode in the rows that end.
        """
        raise NotImplementedError

    @abstractmethod
    def exchange(self, op: int, data: dict[int, Any]) -> dict[int, Any]:
        """Carry out an operation with data in messages; see :func:`steppe.batched.unbuffered.run_rows`."""

    @abstractmethod
    def ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        """Read or call an attribute in each environment."""

    @abstractmethod
    def seed(self, seeds: dict[int, Any]) -> None:
        """Seed some environments, by row."""

    def kill(self) -> None:  # noqa: B027 - in this process there is nothing that could be ended
        """Kill worker processes; a thread that waits for them gets an error."""

    @abstractmethod
    def stop(self, timeout: float) -> None:
        """Close the environments, and give up after ``timeout`` seconds. Calling it again does nothing."""


class AwaitedCall(Protocol):
    """A call of one environment that was not received yet, as :meth:`AsyncBackend.wait` reads it."""

    ticket: Any
    ended: bool


class AsyncBackend(Backend):
    """A backend that can also step single environments without waiting for them."""

    @abstractmethod
    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> Any:
        """Start an operation of one environment, with inputs in storage or in ``message``; return a ticket."""

    @abstractmethod
    def ended(self, ticket: Any) -> bool:
        """Return whether the operation has finished or failed."""

    @abstractmethod
    def result(self, ticket: Any) -> Any:
        """Return ``next`` and the following root, or None if they are in storage; raise the error of the operation."""

    @abstractmethod
    def wait(self, calls: Mapping[int, AwaitedCall], timeout: float | None) -> BaseException | None:
        """Sleep until one of the calls may have ended; returns an error that belongs to none of them.

        The caller holds the lock of the ``Turn`` that the backend was made with; it is released during the wait.
        """
