"""Requests over worker processes: each runs its share of the rows on lanes of its own."""

from __future__ import annotations

import time
from typing import Any

from tensordict import TensorDict

from steppe.collectors.chunk import Chunk
from steppe.collectors.runners import Runner
from steppe.collectors.slots import Assembly
from steppe.collectors.worker_group import WorkerGroup
from steppe.workers import uninterrupted

__all__ = ["WorkerRunner"]


class WorkerRunner(Runner):
    """Lanes of all workers, numbered worker after worker.

    Args:
        worker_group: the workers.
        lanes_each: lanes of one worker.
        n_slots: how many slots there are, through which data comes.
        slot_len: steps of each.
    """

    waits = True

    def __init__(self, worker_group: WorkerGroup, lanes_each: int, n_slots: int, slot_len: int) -> None:
        self.worker_group, self.each, self._n_slots, self._slot_len = worker_group, lanes_each, n_slots, slot_len
        self._infos: tuple[TensorDict | None, TensorDict | None] = (None, None)
        self._assembly: Assembly | None = None
        self.n_lanes, self.parts = worker_group.n * lanes_each, []
        self._live = [0] * worker_group.n

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return sum(self._live)

    def begin(self, chunk: Chunk) -> None:
        messages: dict[int, Any] = {}
        infos_of_all = (chunk.agent_info, chunk.env_info)
        if chunk.rows is None:
            if chunk.agent_info is not None:
                self._infos = (chunk.agent_info, self._infos[1])
            infos_of_all = self._infos
            for worker in range(self.worker_group.n):
                if self._live[worker]:
                    infos = _part(chunk.agent_info, worker * self.each, (worker + 1) * self.each)
                    own = Chunk(None, chunk.n_steps, infos, None, chunk.finishes)
                    messages[worker] = ("request", own, worker * self.each)
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
        group = self.worker_group
        if not group.knows_slots:
            # The slots are laid out for what the first step holds, which the workers then go on from.
            begun = {worker: ("first_step", *given) for worker, (_, *given) in messages.items()}
            if not group.first_steps(begun, self._n_slots, self._slot_len):
                return
            messages = dict.fromkeys(messages, ("go_on",))
        self._assembly = None if group.slots is None else Assembly(group.slots, *infos_of_all)
        group.request(messages)

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
        self._infos = (agent_info, env_info)
        self._live = [self.each] * self.worker_group.n

    def advance(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.worker_group.hear(None if end is None else max(end - time.monotonic(), 0.0), self._keep)
            with uninterrupted():
                if self._assembly is not None and (part := self._assembly.take()) is not None:
                    self.parts.append(part)
            if not self.worker_group.requested:
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def _keep(self, worker: int, told: Any) -> None:
        if told[0] == "end":
            self._live[worker] = told[2]
            told = told[1]
        if told is None:
            return
        kind, data, version = told
        if kind == "pieces":
            assert self._assembly is not None
            self._assembly.add(data, version)
        else:
            self.parts.append(data)

    def cancel(self) -> None:
        self.worker_group.interrupt_requests()

    def drop(self) -> None:
        self.worker_group.ask_all("drop")
        self._live = [0] * self.worker_group.n

    def forget(self) -> None:
        # The workers' own collectors forget theirs.
        self._live = [0] * self.worker_group.n


def _part(infos: TensorDict | None, first: int, end: int) -> TensorDict | None:
    return None if infos is None else infos[first:end].clone()
