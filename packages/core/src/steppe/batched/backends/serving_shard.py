"""ShardService: the environments that one process or thread steps, and the worker process that serves a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from steppe.batched.attributes import ask_row
from steppe.batched.batch_layout import EnvReport, make_envs, report
from steppe.batched.flags import Flags
from steppe.batched.loose_entries import LooseInputs, LooseReports
from steppe.batched.shard import Shard
from steppe.batched.unbuffered import run_rows
from steppe.storage import Storage
from steppe.workers import ControlBlock, ItemError, Service, Worker

__all__ = ["ENTRY", "ShardFactories", "ShardService", "serve"]

#: The entry point of the workers, for a pool.
ENTRY = f"{__name__}:serve"


@dataclass(frozen=True)
class ShardFactories:
    """The factories of a worker, and the row of the first."""

    first_row: int
    factories: list[Callable[[], Any]]


def serve(worker: Worker, shard: ShardFactories) -> None:
    """Make environments, send their reports, and serve commands until the caller is done."""
    service = ShardService(shard.factories, shard.first_row)
    try:
        worker.say((service.reports(), worker.new_modules()))
        worker.serve(service)
    finally:
        service.close()


class ShardService(Service):
    """The environments of a batch that one worker process, one thread or the caller steps.

    Args:
        factories: a factory for each row.
        first_row: the row of the first.

    Attributes:
        envs: the environments by row.

    Raises:
        ItemError: an environment cannot be made.
    """

    def __init__(self, factories: list[Callable[[], Any]], first_row: int) -> None:
        self.first_row = first_row
        self.envs = dict(enumerate(make_envs(factories, first_row), first_row))

    def reports(self) -> list[EnvReport]:
        """Return the report of each environment, for the batch."""
        return [report(env) for env in self.envs.values()]

    def call(self, message: Any) -> Any:
        """Call the method that a message names: ``("seed", seeds)`` calls ``seed(seeds)``."""
        method, *arguments = message
        return getattr(self, method)(*arguments)

    # -- methods of Backend.call: the first argument and the results are values by row --------------------------------

    def exchange(self, data: dict[int, Any], op: int) -> dict[int, tuple[Any, Any]]:
        """Step or reset environments, each on its own TensorDict: see :func:`run_rows`."""
        return run_rows(op, self.envs, data)

    def ask(self, calls: dict[int, Any], path: tuple[str, ...]) -> dict[int, Any]:
        """Read or call an attribute in environments: see :func:`ask_row`."""
        return {row: ask_row(self.envs[row], row, path, call) for row, call in calls.items()}

    def seed(self, seeds: dict[int, Any]) -> dict[int, None]:
        """Seed environments."""
        for row, seed in seeds.items():
            try:
                self.envs[row].set_seed(seed)
            except Exception as error:
                raise ItemError(row, "set_seed") from error
        return {}

    def take_loose(self, rows: dict[int, None]) -> LooseReports:
        """Return the loose entries that changed since the last call."""
        return self.shard.loose.take()

    def set_loose(self, inputs: LooseInputs) -> dict[int, None]:
        """Take over loose entries that the caller has changed."""
        self.shard.loose.set_inputs(inputs)
        return {}

    # -- storage ------------------------------------------------------------------------------------------------------

    def share(self, worker: Worker, control: ControlBlock, message: Any, fds: list[int]) -> None:
        """Write rows of the storage that the caller shares from now on."""
        row, n_rows = message
        storage = Storage(row, (n_rows,), kind="shared", fd=fds[0])
        at_work, at = worker.at_work
        self.use(storage, Flags(n_rows, control.extra), words=at_work, at=at)

    def use(self, storage: Storage, flags: Flags, *, words: Any = None, at: int = 0) -> None:
        """Write rows of this storage from now on; ``words`` and ``at`` are for :class:`Shard`."""
        self.flags = flags
        self.shard = Shard(list(self.envs.values()), storage, flags, self.first_row, words=words, at=at)

    def order(self, op: int, partial: int) -> int:
        """Step or reset rows of storage; returns how many were reset.

        Args:
            op: the operation.
            partial: whether it is for the rows whose flag ``active`` is set; otherwise it is for all rows.
        """
        rows = None
        if partial:
            active = self.flags.active
            rows = [at for at in range(len(self.envs)) if active[self.first_row + at]]
        return self.shard.run(op, rows)

    def close(self) -> None:
        """Close the environments; exceptions that they raise are dropped."""
        for env in self.envs.values():
            try:
                env.close(raise_if_closed=False)
            except Exception:
                continue
