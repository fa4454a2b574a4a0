"""WorkerLanes: the lanes of one worker process, run for the requests of the caller's process."""

from __future__ import annotations

import time
from typing import Any

from steppe.collectors import WorkerLink
from steppe_agents.lanes import Lanes
from steppe_agents.runners import LocalRunner
from steppe_agents.segment import Segment
from steppe_agents.slots import Columns, Piece, Slots, SlotWriter, Stopped

__all__ = ["WorkerLanes"]

#: Seconds between two messages about rows that have ended.
_REPORT_EVERY = 0.02

#: Seconds between two looks for a slot that the caller has freed.
_SLOT_LOOK = 0.0005


class WorkerLanes:
    """Runs segments of requests in a worker, and reports the rows that have ended while others run on.

    Args:
        link: the connection to the caller, and the collector of this worker.
    """

    def __init__(self, link: WorkerLink) -> None:
        self._link = link
        self._slot_writer: SlotWriter | None = None

    def take(self, message: Any, fds: list[int]) -> None:
        """Take over the shared memory for the data of requests."""
        _, columns, n, length = message
        slots = Slots(columns, n, length, fds)
        own = slots.of_worker(self._link.index, self._link.n_workers)
        self._slot_writer = SlotWriter(slots, own, self._say_pieces, self._pause)

    def reset_lanes(self, agent_info: Any, env_info: Any) -> None:
        """Begin an episode in every lane."""
        self._link.take_weights()
        self._lanes().reset(agent_info, env_info)

    def drop(self) -> None:
        """End the lanes that are live, without their data."""
        self._lanes().drop()

    def first_step(self, segment: Segment, first_lane: int) -> Columns | None:
        """Begin a segment, and take its first step; returns what a step holds, or None if that has no fixed layout."""
        lanes = self._begun(segment, first_lane)
        with self._link.backend.acting():
            return lanes.prepare()

    def request(self, segment: Segment, first_lane: int) -> tuple[str, Any, int]:
        """Run a segment to its end."""
        self._begun(segment, first_lane)
        return self.go_on()

    def go_on(self) -> tuple[str, Any, int]:
        """Run the segment that was begun to its end."""
        lanes = self._lanes()
        with self._link.backend.acting():
            reported = time.monotonic()
            while lanes.at_work:
                try:
                    lanes.step()
                except Stopped:
                    lanes.cancel()
                if self._link.is_stopped:
                    lanes.cancel()
                elif lanes.at_work and time.monotonic() - reported > _REPORT_EVERY:
                    if (report := self._report(lanes)) is not None:
                        self._link.say(report)
                    reported = time.monotonic()
        return "end", self._report(lanes), len(lanes.live)

    def _lanes(self) -> Lanes:
        runner: Any = self._link.collector.requests
        assert isinstance(runner.runner, LocalRunner)
        lanes = runner.runner.lanes
        if self._slot_writer is not None:
            lanes.record = self._slot_writer
        return lanes

    def _begun(self, segment: Segment, first_lane: int) -> Lanes:
        self._link.take_weights()
        lanes = self._lanes()
        lanes.first_lane = first_lane
        with self._link.backend.acting():
            if segment.rows is None:
                lanes.begin_slice(segment)
            else:
                lanes.begin_episodes(segment)
        return lanes

    def _report(self, lanes: Lanes) -> tuple[str, Any, int] | None:
        """Return the rows that have ended, or the full slots, since the last report; None if there are none."""
        version = self._link.backend.policy_version
        if isinstance(lanes.record, SlotWriter):
            lanes.forget_finished()
            pieces = lanes.record.take()
            return ("pieces", pieces, version) if pieces else None
        return ("rows", lanes.take(version), 0) if lanes.has_finished else None

    def _say_pieces(self, pieces: list[Piece]) -> None:
        self._link.say(("pieces", pieces, self._link.backend.policy_version))

    def _pause(self) -> bool:
        """Wait for the caller to free a slot; returns True if the caller wishes that the request end, or has ended."""
        return self._link.pause(_SLOT_LOOK)
