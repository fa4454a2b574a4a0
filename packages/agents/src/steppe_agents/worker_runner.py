"""WorkerRunner: run the rows of a request in worker processes."""

from __future__ import annotations

import time
from typing import Any

import torch
from tensordict import TensorDict

from steppe.collectors import WorkersBackend
from steppe.errors import SteppeError, WorkerTimeout
from steppe.specs import Composite
from steppe.storage import Storage
from steppe.workers import uninterrupted
from steppe_agents.assembly import Assembly
from steppe_agents.runners import Runner
from steppe_agents.segment import Segment
from steppe_agents.slots import Columns, Slots, slot_length, step_counts

__all__ = ["WorkerRunner"]

#: Seconds for which workers that have taken their first step wait for the others. Then they go on without slots.
_FIRST_WAIT = 2.0


class WorkerRunner(Runner):
    """Run lanes in all workers, numbered worker after worker.

    Args:
        backend: the workers.
        lanes_each: the number of lanes of a worker.
        n_slots: the number of slots through which workers return data.
        slot_len: the number of steps in a slot; None chooses it by the size of a step.

    Attributes:
        slots: the shared memory for the data; None before its layout is known, or if the data has no fixed layout.
    """

    waits = True

    def __init__(self, backend: WorkersBackend, lanes_each: int, n_slots: int, slot_len: int | None) -> None:
        self.backend, self.each, self._n_slots, self._slot_len = backend, lanes_each, n_slots, slot_len
        self._infos: tuple[TensorDict | None, TensorDict | None] = (None, None)
        self._assembly: Assembly | None = None
        self.slots: Slots | None = None
        #: Whether the first step of a request has shown if the data has a fixed layout.
        #: Data of workers that share no memory with this process always travels in messages.
        self._layout_known = not backend.pool.shares_memory
        #: The workers that must take their first step, or wait after it.
        self._waiting: set[int] = set()
        #: The layout of the data of each worker that has taken its first step, and the time of the first such report.
        self._firsts: dict[int, Columns | None] = {}
        self._first_at = 0.0
        #: The number of steps of each worker, in shared memory, and when each of them took its last step or began.
        self._counts: Storage | None = None
        self._stuck_at: dict[int, float] = {}
        self._cancelled = False
        self.n_lanes, self.parts = backend.num_workers * lanes_each, []
        self._live = [0] * backend.num_workers

    def anew(self) -> WorkerRunner:
        runner = WorkerRunner(self.backend, self.each, self._n_slots, self._slot_len)
        runner.slots, runner._layout_known, runner._counts = self.slots, self._layout_known, self._counts
        return runner

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return sum(self._live)

    def begin(self, segment: Segment) -> None:
        self._cancelled = False
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
        self._prepare_counts()
        self._infos_of_all = infos_of_all
        if self._layout_known or len(messages) < self.backend.num_workers:
            self._start(messages)
            return
        # The layout of the data is known after the first step. The workers then continue from that step.
        self._firsts = {}
        firsts = {worker: (kind, "first_step", *arguments) for worker, (kind, _, *arguments) in messages.items()}
        self._waiting = set(messages)
        self._start(firsts, first=True)

    def _prepare_counts(self) -> None:
        """Give the workers the memory in which they count their steps."""
        if self._counts is None and self.backend.pool.shares_memory:
            self.backend.wait(self.backend.at_work)  # they take memory only between batches
            counts = step_counts(self.backend.num_workers)
            self.backend.hand(("requests", ("steps",)), [counts.fd])
            self._counts = counts
        if self._counts is not None:
            self._steps = self._counts.arrays["steps"].copy()

    def _start(self, messages: dict[int, tuple[object, ...]], *, first: bool = False) -> None:
        if not first:
            self._assembly = None
            if self.slots is not None:
                self.slots.discard()
                self._assembly = Assembly(self.slots, *self._infos_of_all)
        try:
            self.backend.start(messages, self._receive_first if first else self._receive)
        finally:
            self._stuck_at.update(dict.fromkeys(messages, time.monotonic()))

    def _receive_first(self, worker: int, columns: Columns | None) -> bool:
        """Receive the layout of the data of a worker, after its first step."""
        if not self._firsts:
            self._first_at = time.monotonic()
        self._firsts[worker] = columns
        return True

    def _continue(self) -> None:
        """Let the workers continue after their first step, with slots for the data if it has one fixed layout.

        Slots are allocated if all workers take part and none of them is late. Otherwise the data of this request
        travels in messages.
        """
        workers = self._firsts.keys() & self._waiting
        self._waiting -= workers
        columns = [self._firsts[worker] for worker in sorted(workers)]
        if len(columns) == self.backend.num_workers:
            self._layout_known = True
            if columns[0] is not None and all(each == columns[0] for each in columns):
                blocks = self._n_slots // self.n_lanes
                length = slot_length(columns[0], self.each) if self._slot_len is None else self._slot_len
                self.slots = Slots(columns[0], len(columns), self.each, blocks, length)
                self.backend.hand(("requests", ("slots", *self.slots.settings)), self.slots.fds)
        self._start(dict.fromkeys(workers, ("requests", "go_on")))
        if self._cancelled:
            self.backend.interrupt()

    def reset(
        self, agent_info: TensorDict | None, env_info: TensorDict | None, kwargs: dict[str, Any] | None = None
    ) -> None:
        messages: dict[int, tuple[object, ...]] = {}
        for worker in range(self.backend.num_workers):
            first, end = worker * self.each, (worker + 1) * self.each
            infos = _part(agent_info, first, end), _part(env_info, first, end)
            if kwargs is None:
                messages[worker] = ("requests", "reset_lanes", *infos)
            else:
                arguments = {**kwargs, "agent_info": infos[0], "env_info": infos[1]}
                messages[worker] = ("collector", "reset", (), arguments)
        self.backend.ask(messages)
        self._infos = (agent_info, env_info)
        self._live = [self.each] * self.backend.num_workers

    def infer_env_info(self, values: dict[str, torch.Tensor]) -> Composite:
        answers = self.backend.ask_all("requests", "infer_env_info", values)
        specs: list[Composite] = []
        for answer in answers:
            if isinstance(answer, SteppeError):
                raise answer
            specs.append(answer)
        return next((spec for spec in specs if spec.is_empty()), specs[0])

    def advance(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                remaining = None if end is None else max(end - time.monotonic(), 0.0)
                self.backend.hear(self._check_stuck(self._until_late(remaining)))
                with uninterrupted():
                    if self._waiting and (self._firsts.keys() >= self._waiting or self._until_late(None) == 0.0):
                        self._continue()
                    if self._assembly is not None:
                        self._assembly.read()
                if not self.backend.requested:
                    return True
                if end is not None and time.monotonic() >= end:
                    return False
        finally:
            # Once, because rows that are taken together need no copy to join them; after an error of a worker too.
            with uninterrupted():
                if self._assembly is not None:
                    self._assembly.read()
                    if (part := self._assembly.take()) is not None:
                        self.parts.append(part)

    def _until_late(self, remaining: float | None) -> float | None:
        """Return how many seconds to wait for messages at most, so that workers go on without others that are late."""
        if not self._waiting & self._firsts.keys():
            return remaining
        late = max(self._first_at + _FIRST_WAIT - time.monotonic(), 0.0)
        return late if remaining is None else min(remaining, late)

    def _check_stuck(self, remaining: float | None) -> float | None:
        """Return how many seconds to wait for messages at most, so that a worker that is stuck is noticed.

        Raises:
            WorkerTimeout: a worker has taken no step within ``batch_timeout``; all workers are stopped then.
        """
        limit = self.backend.batch_timeout
        if limit is None or self._counts is None:
            return remaining
        steps, now = self._counts.arrays["steps"], time.monotonic()
        self._stuck_at.update(dict.fromkeys((steps != self._steps).nonzero()[0].tolist(), now))
        self._steps = steps.copy()
        for worker in sorted(self.backend.requested):
            # A worker whose report has come is not stuck: the caller did not receive messages for a while.
            if now - self._stuck_at[worker] > limit and not self.backend.pool.has_message(worker):
                error = WorkerTimeout(
                    f"Worker {worker} has taken no step of the request within batch_timeout={limit:g} s.", worker=worker
                )
                self.backend.stop_after(error)
                raise error
        look: float = limit / 4
        return look if remaining is None else min(remaining, look)

    def _receive(self, worker: int, report: Any) -> bool:
        """Receive a report of ``WorkerLanes``.

        Reports are rows, or None if the worker waits until slots are read; the last one ends the segment.

        Returns:
            Whether the segment of this worker has ended.
        """
        is_last = isinstance(report, tuple)
        if is_last:
            _, report, self._live[worker] = report
        if report is not None:
            self.parts.append(report)
        return is_last

    def cancel(self) -> None:
        self._cancelled = True
        self.backend.interrupt()

    def drop(self) -> None:
        self.backend.ask_all("requests", "drop")
        self._live = [0] * self.backend.num_workers

    def forget(self) -> None:
        # The collectors of the workers end their lanes themselves.
        self._live = [0] * self.backend.num_workers


def _part(infos: TensorDict | None, first: int, end: int) -> TensorDict | None:
    return None if infos is None else infos[first:end].clone()
