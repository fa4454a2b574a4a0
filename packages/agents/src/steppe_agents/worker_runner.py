"""WorkerRunner: run the rows of a request in worker processes."""

from __future__ import annotations

import time
from typing import Any

from tensordict import TensorDict

from steppe.collectors import WorkersBackend
from steppe.errors import WorkerError
from steppe.workers import uninterrupted
from steppe_agents.runners import Runner
from steppe_agents.segment import Segment
from steppe_agents.slots import Assembly, Slots

__all__ = ["WorkerRunner"]


class WorkerRunner(Runner):
    """Run lanes in all workers, numbered worker after worker.

    Args:
        backend: the workers.
        lanes_each: the number of lanes of a worker.
        n_slots: the number of slots through which workers return data.
        slot_len: the number of steps in a slot.

    Attributes:
        slots: the shared memory for the data; None before its layout is known, or if the data has no fixed layout.
    """

    waits = True

    def __init__(self, backend: WorkersBackend, lanes_each: int, n_slots: int, slot_len: int) -> None:
        self.backend, self.each, self._n_slots, self._slot_len = backend, lanes_each, n_slots, slot_len
        self._infos: tuple[TensorDict | None, TensorDict | None] = (None, None)
        self._assembly: Assembly | None = None
        self.slots: Slots | None = None
        #: Whether the first step of a request has shown if the data has a fixed layout.
        self._layout_known = False
        #: The error of a worker in the first step of a request, which ``advance`` raises.
        self._failure: WorkerError | None = None
        self.n_lanes, self.parts = backend.num_workers * lanes_each, []
        self._live = [0] * backend.num_workers

    def anew(self) -> WorkerRunner:
        runner = WorkerRunner(self.backend, self.each, self._n_slots, self._slot_len)
        runner.slots, runner._layout_known = self.slots, self._layout_known
        return runner

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return sum(self._live)

    def begin(self, segment: Segment) -> None:
        messages: dict[int, tuple[object, ...]] = {}
        infos_of_all = (segment.agent_info, segment.env_info)
        if segment.rows is None:
            if segment.agent_info is not None:
                self._infos = (segment.agent_info, self._infos[1])
            infos_of_all = self._infos
            for worker in range(self.backend.num_workers):
                if self._live[worker]:
                    infos = _part(segment.agent_info, worker * self.each, (worker + 1) * self.each)
                    part = Segment(None, segment.n_steps, infos, None, segment.finishes)
                    messages[worker] = ("requests", "request", part, worker * self.each)
        else:
            rows, first = len(segment.rows), 0
            for worker in range(self.backend.num_workers):
                end = rows * (worker + 1) // self.backend.num_workers
                if end > first:
                    part = Segment(
                        segment.rows[first:end],
                        None,
                        _part(segment.agent_info, first, end),
                        _part(segment.env_info, first, end),
                    )
                    messages[worker] = ("requests", "request", part, worker * self.each)
                first = end
        if not self._layout_known:
            # The layout of the data is known after the first step. The workers then continue from that step.
            firsts = {worker: (kind, "first_step", *arguments) for worker, (kind, _, *arguments) in messages.items()}
            if not self._first_steps(firsts):
                return
            messages = dict.fromkeys(messages, ("requests", "go_on"))
        self._assembly = None if self.slots is None else Assembly(self.slots, *infos_of_all)
        self.backend.start(messages, self._receive)

    def _first_steps(self, messages: dict[int, tuple[object, ...]]) -> bool:
        """Order the first step of a request, and allocate the slots for its data.

        Slots are allocated if all workers take part and their data has one fixed layout. Otherwise the data of this
        request travels in messages.

        Returns:
            False if a worker raised an error or died; ``advance`` then raises that error.
        """
        try:
            columns = list(self.backend.ask(messages).values())
        except WorkerError as error:
            self._failure = error
            return False
        if len(columns) == self.backend.num_workers:
            self._layout_known = True
            if columns[0] is not None and all(each == columns[0] for each in columns):
                self.slots = Slots(columns[0], self._n_slots, self._slot_len)
                memory = ("slots", columns[0], self._n_slots, self._slot_len)
                self.backend.hand(("requests", memory), self.slots.fds)
        return True

    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        self.backend.ask(
            {
                worker: (
                    "requests",
                    "reset_lanes",
                    _part(agent_info, worker * self.each, (worker + 1) * self.each),
                    _part(env_info, worker * self.each, (worker + 1) * self.each),
                )
                for worker in range(self.backend.num_workers)
            }
        )
        self._infos = (agent_info, env_info)
        self._live = [self.each] * self.backend.num_workers

    def advance(self, timeout: float | None) -> bool:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            self.backend.stop_after(failure)
            raise failure
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.backend.hear(None if end is None else max(end - time.monotonic(), 0.0))
            with uninterrupted():
                if self._assembly is not None and (part := self._assembly.take()) is not None:
                    self.parts.append(part)
            if not self.backend.requested:
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def _receive(self, worker: int, report: Any) -> bool:
        """Process a report of ``WorkerLanes``.

        A report contains rows or full slots; the last one ends the segment.

        Returns:
            Whether the segment of this worker has ended.
        """
        is_last: bool = report[0] == "end"
        if is_last:
            self._live[worker] = report[2]
            report = report[1]
        if report is None:
            return is_last
        kind, data, version = report
        if kind == "slots":
            assert self._assembly is not None
            self._assembly.add(data, version)
        else:
            self.parts.append(data)
        return is_last

    def cancel(self) -> None:
        self.backend.interrupt()

    def drop(self) -> None:
        self.backend.ask_all("requests", "drop")
        self._live = [0] * self.backend.num_workers

    def forget(self) -> None:
        # The collectors of the workers end their lanes themselves.
        self._live = [0] * self.backend.num_workers


def _part(infos: TensorDict | None, first: int, end: int) -> TensorDict | None:
    return None if infos is None else infos[first:end].clone()
