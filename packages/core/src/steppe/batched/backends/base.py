"""Backends of batches: they make, step and close the environments."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from steppe.batched.batch_layout import EnvReport
from steppe.batched.flags import Flags
from steppe.envs import Ended
from steppe.errors import ClosedError
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import AFTER_AN_ERROR, SHUTDOWN_TIMEOUT_AFTER_FAILURE, interrupted, other_process

__all__ = ["Backend"]


class Backend(ABC):
    """Base class of backends, which make, step and close the environments of a batch.

    Attributes:
        reports: the report of each environment, by row.
        outlives: whether it has processes or threads that must be stopped when the batch is garbage collected.
        stopped: whether ``stop`` was called, or an error has stopped it.
        owner: the process that made the environments.
    """

    reports: list[EnvReport]
    outlives: ClassVar[bool]
    stopped = False
    owner: int

    #: Why it was stopped: this, or the result of ``interrupted``.
    _why = AFTER_AN_ERROR

    @abstractmethod
    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        """Make the storage of ``n`` rows that the environments write; ``staged``: data leaves it as one block."""

    def check(self, name: str) -> None:
        """Raise an error if the batch cannot be used: it was stopped, or belongs to another process.

        Args:
            name: of the batch's class, for the error.
        """
        if self.stopped:
            raise ClosedError(f"This {name} was {self._why}: close it, and make a new one.")
        if self.owner != os.getpid():
            raise other_process(name, self.owner)

    @abstractmethod
    def run(self, op: int, rows: list[int] | None) -> int:
        """Carry out an operation on rows of storage, None for all; returns how many were reset."""

    def decoder(self) -> Callable[[torch.Tensor], list[Any] | None] | None:
        """Return a function that decodes the only action of all rows, ``[n, *shape]``, for :meth:`step_decoded`.

        None, the default, if actions go through storage, because other processes or threads read them.
        """
        return None

    def step_decoded(self, actions: list[Any], rows: list[int] | None, reset: bool) -> Ended:
        """Step rows, None for all, with library actions from :meth:`decoder`; returns the rows that ended.

        Args:
            actions: one for each of the rows.
            rows: which rows.
            reset: begin an episode in the rows that end.
        """
        raise NotImplementedError

    @abstractmethod
    def call(
        self, method: str, parts: Mapping[int, Any], *arguments: Any, is_step: bool = False, survives: bool = True
    ) -> dict[int, Any]:
        """Call a method of :class:`ShardService` where the environments of some rows are; returns its results by row.

        Args:
            method: ``"exchange"``, ``"ask"``, ``"seed"``, ``"take_loose"`` or ``"set_loose"``.
            parts: the first argument of the method: a value for each row.
            *arguments: the other arguments.
            is_step: whether the time limit of a step holds.
            survives: whether the batch stays usable if an environment raises.
        """

    def kill(self) -> None:  # noqa: B027 - in this process there is nothing that could be ended
        """Kill worker processes; a thread that waits for them gets an error."""

    @abstractmethod
    def stop(self, timeout: float) -> None:
        """Close the environments, and give up after ``timeout`` seconds. Calling it again does nothing."""

    def stop_unless(self, settled: Callable[[], bool], grace: float) -> None:
        """Stop after an interrupt, unless environments finish their step; a second interrupt stops at once.

        Args:
            settled: waits until they have finished, and returns whether the batch can be used.
            grace: the seconds that they have.
        """
        usable = False
        try:
            usable = settled()
        finally:
            if not usable:
                self._why = interrupted("environment", grace)
                self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
