"""What a batch needs of whoever steps its environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import torch

from steppe.batched.batch_layout import EnvReport
from steppe.batched.flags import Flags
from steppe.batched.loose_entries import Reports
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
    """The environments of one batch, wherever they are.

    Attributes:
        reports: what each environment says of itself, by row.
        outlives: whether something is left (processes, threads) when nobody holds the batch any more, unless it is
            stopped.
        stopped: whether ``stop`` was called, or an error ended it.
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
    def set_loose(self, inputs: dict[int, dict[Any, object]]) -> None:
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
        """The same with data that travels: see :func:`steppe.batched.unbuffered.run_rows`."""

    @abstractmethod
    def ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        """Read or call an attribute in each environment."""

    @abstractmethod
    def seed(self, seeds: dict[int, Any]) -> None:
        """Seed the environments that are named."""

    def kill(self) -> None:  # noqa: B027 - in this process there is nothing that could be ended
        """End what can be ended without its consent: another thread waits for it, and is raised an error."""

    @abstractmethod
    def stop(self, timeout: float) -> None:
        """Close the environments; what has not come back after ``timeout`` seconds is given up. Once is enough."""


class AwaitedCall(Protocol):
    """A call of one environment that was not received yet, as :meth:`AsyncBackend.wait` reads it."""

    ticket: Any
    ended: bool


class AsyncBackend(Backend):
    """One that also sets single environments to work, and does not wait for them."""

    @abstractmethod
    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> Any:
        """Have an environment begin; returns a ticket. Its inputs are in storage, or in ``message``."""

    @abstractmethod
    def ended(self, ticket: Any) -> bool:
        """Whether it has done that, or failed in it."""

    @abstractmethod
    def result(self, ticket: Any) -> Any:
        """``next`` and the following root where data travels, None where it is in storage; or what was raised."""

    @abstractmethod
    def wait(self, calls: Mapping[int, AwaitedCall], timeout: float | None) -> BaseException | None:
        """Sleep until one of the calls may have ended; returns an error that belongs to none of them.

        The caller holds the lock of the ``Turn`` that the backend was made with; it is released during the wait.
        """
