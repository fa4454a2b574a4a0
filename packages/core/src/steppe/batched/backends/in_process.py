"""Backend of environments in this process, which are stepped one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import torch

from steppe.batched.backends.base import Backend
from steppe.batched.flags import Flags
from steppe.batched.shard import ShardService
from steppe.envs import Ended
from steppe.errors import WorkerError
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import Failure, ItemError

__all__ = ["CallersShard", "InProcess"]

_T = TypeVar("_T")


class InProcess(Backend):
    """Step all environments of a batch in this process; see :class:`~steppe.batched.backends.base.Backend`.

    An exception of an environment reaches the caller unchanged, with a note that names the environment.
    """

    outlives: ClassVar[bool] = False

    def __init__(self, factories: list[Callable[[], Any]]) -> None:
        # The first use may be under inference mode, but tensors of environments must be usable in any mode.
        with torch.inference_mode(False):
            self.service = self._raising(ShardService, factories, 0)
        self.reports = self.service.reports()
        self.envs = list(self.service.envs.values())

    def attach(self, row: Composite, n: int, *, staged: bool) -> tuple[Storage, Flags]:
        storage, flags = Storage(row, (n,), kind="shared" if staged else "plain"), Flags(n)
        self.service.use(storage, flags)
        return storage, flags

    def check(self, name: str) -> None:
        pass

    def run(self, op: int, rows: list[int] | None) -> int:
        return self._raising(self.service.run, op, rows)

    def decoder(self) -> Callable[[torch.Tensor], list[Any] | None] | None:
        return self.service.decoder()

    def step_decoded(self, actions: list[Any], rows: list[int] | None, reset: bool) -> Ended:
        return self._raising(self.service.step, rows, reset, actions)

    def call(
        self, method: str, parts: Mapping[int, Any], *arguments: Any, is_step: bool = False, survives: bool = True
    ) -> dict[int, Any]:
        return self._raising(self.service.call, (method, parts, *arguments))

    def stop(self, timeout: float) -> None:
        self.stopped = True
        for env in self.envs:
            env.close(raise_if_closed=False)
        self.envs = []

    def _raising(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Call a function; if an environment raises, raise the error that the caller gets."""
        try:
            return function(*arguments)
        except ItemError as error:
            raised = self._caller_error(error)
        # Raised here, so that the caught error does not become its context.
        raise raised

    def _caller_error(self, error: ItemError) -> BaseException:
        cause = error.__cause__
        assert cause is not None
        if hasattr(cause, "add_note"):
            where = "" if error.index is None else f" of environment {error.index}"
            cause.add_note(f"in {error.doing}{where} of a SerialEnv")
        return cause


class CallersShard(InProcess):
    """Step the first rows of a batch in the caller's process, while workers step the others.

    An exception of an environment becomes a WorkerError, as in workers.
    """

    def stepper(self, op: int, rows: list[int] | None) -> Callable[[], int]:
        """Return a function that carries out an operation on the rows of this process."""
        shard_rows = None if rows is None else self._own(rows)
        return lambda: self.run(op, shard_rows)

    def call(
        self, method: str, parts: Mapping[int, Any], *arguments: Any, is_step: bool = False, survives: bool = True
    ) -> dict[int, Any]:
        return super().call(method, {row: parts[row] for row in self._own(parts)}, *arguments)

    def _own(self, rows: Any) -> list[int]:
        return [row for row in rows if row < len(self.envs)]

    def _caller_error(self, error: ItemError) -> WorkerError:
        raised = Failure.of(error, "step").error("environment", None)
        raised.__cause__ = error.__cause__
        return raised
