"""FrameStore: the steps of running rows.

It is used if the data of a request stays in this process or travels in messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors import scatter
from steppe.errors import SpecError
from steppe.specs import CPU

__all__ = ["FrameStore", "RunningRow"]


@dataclass
class RunningRow:
    """A row of a request that a lane runs.

    Attributes:
        place: index in the segment that this process runs.
        number: index in the whole request; in a slice, the number of the lane.
        lane: number of the lane, counted over all workers.
        local_lane: number of the lane in this process.
        episode: number of the first episode of the row.
        length: number of steps so far.
        state: state of the agent at the first step, or None.
        frames: for each step, its index in the ``FrameStore`` and the index of the row in that step.
        slot: index of the slot that the row writes to, if the data goes through shared memory.
        in_slot: number of steps in that slot.
    """

    place: int
    number: int
    lane: int
    local_lane: int
    episode: int
    length: int = 0
    state: TensorDictBase | None = None
    frames: list[tuple[int, int]] = field(default_factory=list)
    slot: int | None = None
    in_slot: int = 0


class FrameStore:
    """Store the steps of rows until their rows have ended and are taken."""

    def __init__(self) -> None:
        self._frames: list[TensorDictBase] = []

    def clear(self) -> None:
        """Drop the steps of all rows."""
        self._frames = []

    def drop_running(self) -> None:
        """Do nothing: the steps of cancelled rows are dropped by the next :meth:`take`."""

    def write(self, frame: TensorDictBase, rows: list[RunningRow]) -> None:
        """Store a step of some rows ``[k]``."""
        step = len(self._frames)
        self._frames.append(frame.clone())  # a policy may return views of its weights, which change later
        for at, row in enumerate(rows):
            row.frames.append((step, at))

    def end(self, row: RunningRow, alive: bool) -> None:
        """Do nothing: a row that has ended keeps its steps until :meth:`take`."""

    def take(self, rows: list[RunningRow], running: list[RunningRow]) -> TensorDict:
        """Return and drop the steps of some rows.

        Args:
            rows: rows that have ended.
            running: rows that have not ended, whose steps are kept.

        Returns:
            Data ``[rows, longest]``, padded with zeros.
        """
        starts = _tensor([0] + [len(frame) for frame in self._frames]).cumsum(0).tolist()
        try:
            flat = cat_tds(self._frames) if len(self._frames) > 1 else self._frames[0]
        except RuntimeError:
            _check_shapes(self._frames)
            raise
        longest = max(row.length for row in rows)
        index: list[int] = []
        positions: list[int] = []
        for at, row in enumerate(rows):
            index += [starts[step] + place for step, place in row.frames]
            positions += range(at * longest, at * longest + row.length)
        steps = scatter(flat[_tensor(index)], _tensor(positions), len(rows), longest)
        steps.names = [None, "time"]
        self._keep_only(running, flat, starts)
        return steps

    def _keep_only(self, running: list[RunningRow], flat: TensorDictBase, starts: Sequence[int]) -> None:
        """Drop the steps of all rows that are not in ``running``."""
        index: list[int] = []
        for row in running:
            places = [starts[step] + place for step, place in row.frames]
            row.frames = [(0, len(index) + at) for at in range(len(places))]
            index += places
        self._frames = [flat[_tensor(index)]] if index else []


def _check_shapes(frames: Sequence[TensorDictBase]) -> None:
    """Raise a SpecError that names the entry whose shape changes from one step to another."""
    first = {key: tuple(value.shape[1:]) for key, value in frames[0].items(True, True)}
    for frame in frames:
        for key, shape in first.items():
            value = frame.get(key, None)
            if value is None or tuple(value.shape[1:]) != shape:
                now = "is missing" if value is None else f"has shape {tuple(value.shape[1:])}"
                raise SpecError(f"The entry {key!r} {now} in a step, and had shape {shape} in the first one.")


def _tensor(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=CPU)
