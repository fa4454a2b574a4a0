"""Requests over worker processes: each runs its share of the rows on lanes of its own."""

from __future__ import annotations

import time
from typing import Any

from tensordict import TensorDict

from steppe.collectors.lanes import Chunk
from steppe.collectors.requests import Runner
from steppe.collectors.worker_group import WorkerGroup

__all__ = ["WorkerRunner"]


class WorkerRunner(Runner):
    """Lanes of all workers, numbered worker after worker.

    Args:
        worker_group: the workers.
        lanes_each: lanes of one worker.
    """

    def __init__(self, worker_group: WorkerGroup, lanes_each: int) -> None:
        self.worker_group, self.each = worker_group, lanes_each
        self.n_lanes, self.parts = worker_group.n * lanes_each, []
        self._live = [0] * worker_group.n

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return sum(self._live)

    def begin(self, chunk: Chunk) -> None:
        messages: dict[int, Any] = {}
        if chunk.rows is None:
            for worker in range(self.worker_group.n):
                if self._live[worker]:
                    infos = _part(chunk.agent_info, worker * self.each, (worker + 1) * self.each)
                    messages[worker] = ("request", Chunk(None, chunk.n_steps, infos, None), worker * self.each)
        else:
            rows, first = len(chunk.rows), 0
            for worker in range(self.worker_group.n):
                end = rows * (worker + 1) // self.worker_group.n
                if end > first:
                    own = Chunk(
                        chunk.rows[first:end],
                        None,
                        _part(chunk.agent_info, first, end),
                        _part(chunk.env_info, first, end),
                    )
                    messages[worker] = ("request", own, worker * self.each)
                first = end
        self.worker_group.request(messages)

    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        self.worker_group.ask(
            {
                worker: (
                    "reset_lanes",
                    _part(agent_info, worker * self.each, (worker + 1) * self.each),
                    _part(env_info, worker * self.each, (worker + 1) * self.each),
                )
                for worker in range(self.worker_group.n)
            }
        )
        self._live = [self.each] * self.worker_group.n

    def advance(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            for worker, (kind, part, live) in self.worker_group.hear(
                None if end is None else max(end - time.monotonic(), 0.0)
            ):
                if part is not None:
                    self.parts.append(part)
                if kind == "end":
                    self._live[worker] = live
            if not self.worker_group.requested:
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def cancel(self) -> None:
        self.worker_group.interrupt_requests()

    def drop(self) -> None:
        self.worker_group.ask_all("drop")
        self._live = [0] * self.worker_group.n


def _part(infos: TensorDict | None, first: int, end: int) -> TensorDict | None:
    return None if infos is None else infos[first:end].clone()
