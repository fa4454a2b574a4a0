"""FrameStore: the steps of running rows.

It is used for data without a fixed layout, and for data that travels from workers in messages.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors import scatter
from steppe.errors import SpecError
from steppe.specs import CPU
from steppe_agents.running_row import RunningRow

__all__ = ["FrameStore"]


class FrameStore:
    """Store the steps of rows until their rows have ended and are taken."""

    def __init__(self) -> None:
        self._frames: list[TensorDictBase] = []

    def clear(self) -> None:
        """Drop the steps of all rows."""
        self._frames = []

    def write(self, frame: TensorDictBase, rows: list[RunningRow]) -> None:
        """Store a step of some rows ``[k]``."""
        step = len(self._frames)
        self._frames.append(frame.clone())  # a policy may return views of its weights, which change later
        for at, row in enumerate(rows):
            row.frames.append((step, at))

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
