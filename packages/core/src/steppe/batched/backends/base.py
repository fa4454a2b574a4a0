"""What a batch needs of whoever steps its environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from steppe.batched.flags import Flags
from steppe.batched.layout import EnvReport
from steppe.specs import Composite
from steppe.storage import Storage

__all__ = ["AsyncBackend", "Backend"]


class Backend(Protocol):
    """The environments of one batch, wherever they are.

    Attributes:
        reports: what each environment says of itself, by row.
        outlives: whether something is left (processes, threads) when nobody holds the batch any more, unless it is
            stopped.
        stopped: whether ``stop`` was called, or an error ended it.
        meanwhile: what the caller does while others carry out an operation on all rows.
    """

    meanwhile: Callable[[], object] | None
    reports: list[EnvReport]
    outlives: ClassVar[bool]
    stopped: bool

    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        """Make the storage of ``n`` rows that the environments write; ``staged``: data leaves it as one block."""

    def check(self, user: object) -> None:
        """Raise what stands in the way of a use of ``user``, the batch: an error before, or another process."""

    def run(self, op: int, rows: list[int] | None) -> int:
        """Carry out an operation on rows of storage, None for all; returns how many were reset."""

    def exchange(self, op: int, data: dict[int, Any]) -> dict[int, Any]:
        """The same with data that travels: see :func:`steppe.batched.unbuffered.run_rows`."""

    def ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        """Read or call an attribute in each environment."""

    def seed(self, seeds: dict[int, Any]) -> None:
        """Seed the environments that are named."""

    def stop(self, patience: float) -> None:
        """Close the environments; what has not come back after ``patience`` seconds is given up. Once is enough."""


class AsyncBackend(Backend, Protocol):
    """One that also sets single environments to work, and does not wait for them."""

    def order(self, row: int, op: int, message: tuple[Any, dict[str, Any]] | None) -> Any:
        """Have an environment begin; returns a ticket. Its inputs are in storage, or in ``message``."""

    def ended(self, ticket: Any) -> bool:
        """Whether it has done that, or failed in it."""

    def result(self, ticket: Any) -> Any:
        """``next`` and the following root where data travels, None where it is in storage; or what was raised."""

    def wait(self, jobs: dict[int, Any], timeout: float | None) -> BaseException | None:
        """Sleep until a job may have ended; an error that belongs to none of them is returned.

        The condition that the backend was made with is held, and let go meanwhile.
        """
