"""WorkerLanes: run the lanes of a worker for requests of the caller's process."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from tensordict import TensorDict

from steppe.collectors import WorkerLink
from steppe.errors import SteppeError
from steppe.specs import Composite
from steppe_agents.lanes import Lanes
from steppe_agents.runners import LocalRunner
from steppe_agents.segment import Segment
from steppe_agents.slot_writer import SlotWriter, Stopped
from steppe_agents.slots import Columns, Slots, step_counts
from steppe_agents.trajectories import Trajectories

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
        #: The number of steps of each worker: a memoryview, which counts in a third of the time of an array.
        self._steps: memoryview | None = None

    def take(self, message: tuple[Any, ...], fds: list[int]) -> None:
        """Map shared memory: for the data of requests, or for the number of steps of each worker.

        Args:
            message: ``("slots", *slots.settings)`` or ``("steps",)``.
            fds: descriptors of the memory.
        """
        if message[0] == "steps":
            self._steps = step_counts(self._link.n_workers, fds[0]).arrays["steps"].data
            return
        slots = Slots(*message[1:], fds=fds)
        # The message wakes a caller that waits for the end of the segment.
        self._slot_writer = SlotWriter(
            slots, self._link.worker.index, filled=lambda: self._link.worker.say(None), wait=self._wait
        )

    def reset_lanes(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        """Let the next slice begin an episode in each lane."""
        self._lanes().reset(agent_info, env_info)

    def drop(self) -> None:
        """End all live lanes and drop their data."""
        self._lanes().drop()

    def infer_env_info(self, values: dict[str, torch.Tensor]) -> Composite | SteppeError:
        """Let the environment infer its ``env_info_spec``; return the error of an environment that refuses the values.

        See :meth:`Runner.infer_env_info`.
        """
        try:
            return self._runner().infer_env_info(values)
        except SteppeError as error:
            return error

    def first_step(self, segment: Segment, first_lane: int) -> Columns | None:
        """Begin a segment and take its first step.

        Returns the layout of its data, or None if that may change.
        """
        lanes = self._begin(segment, first_lane)
        with self._link.backend.acting():
            columns = lanes.prepare()
        self._count_step()
        return columns

    def request(self, segment: Segment, first_lane: int) -> tuple[str, Trajectories | None, int]:
        """Run a segment to its end; see :meth:`go_on`."""
        self._begin(segment, first_lane)
        return self.go_on()

    def go_on(self) -> tuple[str, Trajectories | None, int]:
        """Run the current segment to its end.

        Returns:
            ``"end"``, the last report, and the number of live lanes.
        """
        lanes = self._lanes()
        self._link.keep_weights()
        with self._link.backend.acting():
            try:
                lanes.run(partial(self._after_step, lanes))
            except Stopped:
                pass
        if lanes.is_running:
            lanes.cancel()
        return "end", self._report(lanes), len(lanes.live)

    def _after_step(self, lanes: Lanes) -> bool:
        """Report rows that travel in messages, and return whether the caller cancels the request."""
        self._count_step()
        if lanes.has_finished:
            self._link.worker.say(self._report(lanes))  # at once: the next step of another row may be slow
        return self._link.collection_stopped()

    def _count_step(self) -> None:
        """Tell the caller that this worker is not stuck."""
        if self._steps is not None:
            self._steps[self._link.worker.index] += 1

    def _runner(self) -> LocalRunner:
        runner = cast("Requests", self._link.collector.requests).runner
        assert isinstance(runner, LocalRunner)
        return runner

    def _lanes(self) -> Lanes:
        lanes = self._runner().lanes
        lanes.worker, lanes.n_workers = self._link.worker.index, self._link.n_workers
        lanes.writer_of = None  # the caller allocates the slots
        if self._slot_writer is not None:
            lanes.store = self._slot_writer
            self._slot_writer.version = self._link.backend.policy_version
        return lanes

    def _begin(self, segment: Segment, first_lane: int) -> Lanes:
        self._link.take_weights()
        lanes = self._lanes()
        lanes.first_lane, lanes.act = first_lane, self._link.backend.act
        with self._link.backend.acting():
            if segment.rows is None:
                lanes.begin_slice(segment)
            else:
                lanes.begin_episodes(segment)
        return lanes

    def _report(self, lanes: Lanes) -> Trajectories | None:
        """Return the rows that have ended since the last report; None if their data is in slots, or there are none."""
        return lanes.take(self._link.backend.policy_version) if lanes.has_finished else None

    def _wait(self) -> bool:
        """Wait a moment for the caller to read a block; return whether it cancels the request, or has ended."""
        self._count_step()
        return self._link.collection_stopped() or self._link.worker.pause(_SLOT_LOOK)
