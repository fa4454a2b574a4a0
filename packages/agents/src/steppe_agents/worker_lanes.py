"""WorkerLanes: run the lanes of a worker for requests of the caller's process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from tensordict import TensorDict

from steppe.collectors import WorkerLink
from steppe.storage import Storage
from steppe_agents.lanes import Lanes
from steppe_agents.runners import LocalRunner
from steppe_agents.segment import Segment
from steppe_agents.slots import Columns, FullSlot, Slots, SlotWriter, Stopped, step_counts

if TYPE_CHECKING:
    from steppe_agents.requests import Requests

__all__ = ["WorkerLanes"]

#: Seconds between two checks for a free slot.
_SLOT_LOOK = 0.0005


class WorkerLanes:
    """Run segments of requests in a worker.

    Rows that have ended are reported while others run.

    Args:
        link: the connection to the caller, and the collector of this worker.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._slot_writer: SlotWriter | None = None
        self._steps: Storage | None = None

    def take(self, message: tuple[Any, ...], fds: list[int]) -> None:
        """Map shared memory: for the data of requests, or for the number of steps of each worker.

        Args:
            message: ``("slots", columns, number of slots, steps of a slot)`` or ``("steps",)``.
            fds: descriptors of the memory.
        """
        if message[0] == "steps":
            self._steps = step_counts(self._link.n_workers, fds[0])
            return
        _, columns, n, length = message
        slots = Slots(columns, n, length, fds)
        slots_of_worker = slots.of_worker(self._link.worker.index, self._link.n_workers)
        self._slot_writer = SlotWriter(slots, slots_of_worker, self._send_slots, self._pause)

    def reset_lanes(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        """Let the next slice begin an episode in each lane."""
        self._lanes().reset(agent_info, env_info)

    def drop(self) -> None:
        """End all live lanes and drop their data."""
        self._lanes().drop()

    def first_step(self, segment: Segment, first_lane: int) -> Columns | None:
        """Begin a segment and take its first step.

        Returns the layout of its data, or None if that may change.
        """
        lanes = self._begin(segment, first_lane)
        with self._link.backend.acting():
            columns = lanes.prepare()
        self._count_step()
        return columns

    def request(self, segment: Segment, first_lane: int) -> tuple[str, object, int]:
        """Run a segment to its end; see :meth:`go_on`."""
        self._begin(segment, first_lane)
        return self.go_on()

    def go_on(self) -> tuple[str, object, int]:
        """Run the current segment to its end.

        Returns:
            ``"end"``, the last report, and the number of live lanes.
        """
        lanes = self._lanes()
        self._link.keep_weights()
        with self._link.backend.acting():
            while lanes.is_running:
                try:
                    lanes.step()
                except Stopped:
                    lanes.cancel()
                self._count_step()
                if self._link.collection_stopped():
                    lanes.cancel()
                elif lanes.is_running and lanes.has_finished and (report := self._report(lanes)) is not None:
                    self._link.worker.say(report)  # at once: the next step of another row may be slow
        return "end", self._report(lanes), len(lanes.live)

    def _count_step(self) -> None:
        """Tell the caller that this worker is not stuck."""
        if self._steps is not None:
            self._steps.arrays["steps"][self._link.worker.index] += 1

    def _lanes(self) -> Lanes:
        requests = cast("Requests", self._link.collector.requests)
        assert isinstance(requests.runner, LocalRunner)
        lanes = requests.runner.lanes
        lanes.worker, lanes.n_workers = self._link.worker.index, self._link.n_workers
        if self._slot_writer is not None:
            lanes.store = self._slot_writer
        return lanes

    def _begin(self, segment: Segment, first_lane: int) -> Lanes:
        self._link.take_weights()
        lanes = self._lanes()
        lanes.first_lane = first_lane
        with self._link.backend.acting():
            if segment.rows is None:
                lanes.begin_slice(segment)
            else:
                lanes.begin_episodes(segment)
        return lanes

    def _report(self, lanes: Lanes) -> tuple[str, object, int] | None:
        """Return the rows or slots to report; None if there are none.

        These are the rows that have ended since the last report, or the slots that are full.
        """
        version = self._link.backend.policy_version
        if isinstance(lanes.store, SlotWriter):
            lanes.forget_finished()
            full = lanes.store.take()
            return ("slots", full, version) if full else None
        return ("rows", lanes.take(version), 0) if lanes.has_finished else None

    def _send_slots(self, full: list[FullSlot]) -> None:
        self._link.worker.say(("slots", full, self._link.backend.policy_version))

    def _pause(self) -> bool:
        """Wait for the caller to read a slot.

        Returns True if the caller cancels the request, or has ended.
        """
        self._count_step()
        return self._link.collection_stopped() or self._link.worker.pause(_SLOT_LOOK)
