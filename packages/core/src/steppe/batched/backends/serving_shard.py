"""The worker of a batch: it makes the environments of its shard and steps them on command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from steppe.batched.batch_layout import make_envs, report
from steppe.batched.flags import Flags
from steppe.batched.operations import ask_rows, perform, seed_rows
from steppe.batched.shard import Shard
from steppe.batched.unbuffered import run_rows
from steppe.storage import Storage, StorageHandle
from steppe.workers import ControlBlock, Service, Worker

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
    envs = make_envs(shard.factories, shard.first_row)
    try:
        worker.say(([report(env) for env in envs], worker.new_modules()))
        worker.serve(ShardService(envs, shard.first_row))
    finally:
        for env in envs:
            try:
                env.close(raise_if_closed=False)
            except Exception:
                continue


class ShardService(Service):
    """Serves the commands of a batch."""

    def __init__(self, envs: list[Any], first_row: int) -> None:
        self.first_row = first_row
        self.envs = dict(enumerate(envs, first_row))

    def call(self, message: Any) -> Any:
        kind, *given = message
        if kind == "seed":
            return seed_rows(self.envs, *given)
        if kind == "rows":
            op, data = given
            return run_rows(op, self.envs, data)
        if kind in ("take_loose", "set_loose"):
            loose = self.shard.loose
            assert loose is not None
            return loose.take() if kind == "take_loose" else loose.set_inputs(*given)
        path, calls = given
        return cloudpickle.dumps(ask_rows(self.envs, path, cloudpickle.loads(calls)))

    def share(self, worker: Worker, control: ControlBlock, message: Any, fds: list[int]) -> None:
        row, n_rows, nbytes = message
        storage = Storage.attach(StorageHandle(row, (n_rows,), nbytes, fds[0]))
        at_work, at = worker.at_work
        self.use(storage, Flags(n_rows, control.extra), words=at_work, at=at)

    def use(self, storage: Storage, flags: Flags, *, words: Any = None, at: int = 0) -> None:
        """Write rows of this storage from now on; ``words`` and ``at`` are for :class:`Shard`."""
        self.flags = flags
        self.shard = Shard(list(self.envs.values()), storage, flags, self.first_row, words=words, at=at)

    def order(self, op: int, partial: int) -> int:
        rows = None
        if partial:
            active = self.flags.active
            rows = [at for at in range(len(self.envs)) if active[self.first_row + at]]
        return perform(self.shard, op, rows)
