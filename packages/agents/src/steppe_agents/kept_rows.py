"""Rows at work, and the frames of those that stay in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors import scatter
from steppe.specs import CPU

__all__ = ["KeptFrames", "Row"]


@dataclass
class Row:
    """A row at work: its place, and what is known from its beginning.

    Attributes:
        place: in the part of the request that this process runs.
        number: in the whole request; of a slice, the lane over all workers.
        lane: over all workers.
        own_lane: in this process.
        episode: number of its first episode.
        length: steps that it has.
        state: the agent's at its first step.
        frames: where its steps are kept, in this process.
        slot, in_slot: where its next step goes, in shared memory.
    """

    place: int
    number: int
    lane: int
    own_lane: int
    episode: int
    length: int = 0
    state: Any = None
    frames: list[tuple[int, int]] = field(default_factory=list)
    slot: int | None = None
    in_slot: int = 0


class KeptFrames:
    """Keeps the steps of rows as they come, until they are taken."""

    def __init__(self) -> None:
        self._kept: list[TensorDictBase] = []

    def clear(self) -> None:
        """Forget all rows."""
        self._kept = []

    def drop_running(self) -> None:
        """Forget the rows that have not ended: their frames go when the others are taken."""

    def write(self, frame: TensorDictBase, rows: list[Row]) -> None:
        """Keep a step of some rows ``[k]``."""
        step = len(self._kept)
        self._kept.append(frame)
        for at, row in enumerate(rows):
            row.frames.append((step, at))

    def end(self, row: Row, alive: bool) -> None:
        """Hear that a row has ended."""

    def take(self, rows: list[Row], running: list[Row]) -> TensorDict:
        """Return the steps of rows, ``[rows, longest]``, padded with zeros, and keep those of others."""
        sizes = _tensor([0] + [len(frame) for frame in self._kept]).cumsum(0).tolist()
        flat = cat_tds(self._kept) if len(self._kept) > 1 else self._kept[0]
        longest = max(row.length for row in rows)
        index: list[int] = []
        slots: list[int] = []
        for at, row in enumerate(rows):
            index += [sizes[step] + place for step, place in row.frames]
            slots += range(at * longest, at * longest + row.length)
        steps = scatter(flat[_tensor(index)], _tensor(slots), len(rows), longest)
        steps.names = [None, "time"]
        self._forget(flat, sizes, running)
        return steps

    def _forget(self, flat: TensorDictBase, sizes: list[int], running: list[Row]) -> None:
        """Keep the frames of rows that are still at work, and no others."""
        index: list[int] = []
        for row in running:
            places = [sizes[step] + place for step, place in row.frames]
            row.frames = [(0, len(index) + at) for at in range(len(places))]
            index += places
        self._kept = [flat[_tensor(index)]] if index else []


def _tensor(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64, device=CPU)
