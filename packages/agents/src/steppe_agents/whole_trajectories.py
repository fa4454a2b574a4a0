"""WholeTrajectories: collect the frames of trajectories that span several batches, until these have ended."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors import split_trajectories
from steppe.envs import DoneGroup, rows_ended

__all__ = ["WholeTrajectories"]

_State = tuple[dict[int, list[TensorDictBase]], list[TensorDictBase]]


class WholeTrajectories:
    """Converts batches of frames to whole trajectories, in the order in which they ended.

    Each method computes its result first and assigns it last, so Ctrl-C loses no frame of a trajectory.

    A collector makes it for ``trajs_per_batch=``.

    Args:
        groups: the levels of the data that have done entries, the root first.
        number: how many trajectories the caller gets at once.
        padded: the caller gets ``[number, longest]``, padded, with a mask; False: ``[frames]``, one trajectory after
            the other.
        per_write: how many trajectories are written to a replay buffer at once; None: all that have ended.

    Attributes:
        state: the segments of running trajectories by id, and the trajectories that have ended. Both are replaced,
            never changed in place.
    """

    def __init__(self, groups: list[DoneGroup], *, number: int, padded: bool, per_write: int | None) -> None:
        self._groups = groups
        self._number, self._padded, self._per_write = number, padded, per_write
        self.state: _State = ({}, [])

    def __len__(self) -> int:
        """Return the number of trajectories that have ended and were not taken."""
        return len(self.state[1])

    def with_batch(self, batch: TensorDictBase) -> _State:
        """Return the state after frames ``[*B, T]`` with ``("collector", "traj_ids")``.

        Trajectories that end together are sorted by id.
        """
        running, ended = {number: list(segments) for number, segments in self.state[0].items()}, list(self.state[1])
        flat = batch.reshape(-1)
        earlier = next((segment for segments in (*running.values(), ended) for segment in segments), None)
        if earlier is not None and set(flat.keys(True, True)) != set(earlier.keys(True, True)):
            # The policy acts for the first time after random actions. Its entries are 0 in the frames before.
            running = {number: [_with_zeros(part, flat) for part in segments] for number, segments in running.items()}
            ended = [_with_zeros(trajectory, flat) for trajectory in ended]
        ids = flat.get(("collector", "traj_ids"))
        if bool((ids < 0).any()):  # the missing frames of an interrupted batch
            flat = flat[ids >= 0]
            ids = ids[ids >= 0]
        order = ids.argsort(stable=True)
        flat = flat[order]
        ends = rows_ended(flat.get("next"), self._groups)
        numbers, lengths = ids[order].unique_consecutive(return_counts=True)
        segments = flat.split(lengths.tolist())
        for number, segment, end in zip(numbers.tolist(), segments, lengths.cumsum(0), strict=True):
            running.setdefault(number, []).append(segment)
            if ends[end - 1]:
                ended.append(_concatenated(running.pop(number)))
        return running, ended

    def drop_running(self) -> None:
        """Drop the trajectories that have not ended."""
        self.state = {}, self.state[1]

    def drop_all(self) -> None:
        """Drop all trajectories, also those that have ended."""
        self.state = {}, []

    def waiting(self) -> TensorDictBase | None:
        """Return and drop the trajectories that the caller gets next; None if not enough have ended."""
        if len(self) < self._number:
            return None
        frames = self._first(self._number)
        trajectories = split_trajectories(frames, prefix="collector") if self._padded else frames
        self._forget_first(self._number)
        return trajectories

    def store(self, buffer: Any) -> None:
        """Write the trajectories that have ended to a replay buffer, ``[frames]`` each time, and drop them."""
        while len(self):
            number = len(self) if self._per_write is None else self._per_write
            buffer.extend(self._first(number))
            self._forget_first(number)

    def _first(self, number: int) -> TensorDictBase:
        return _concatenated(self.state[1][:number])

    def _forget_first(self, number: int) -> None:
        self.state = self.state[0], self.state[1][number:]


def _with_zeros(frames: TensorDictBase, example: TensorDictBase) -> TensorDictBase:
    """Return ``frames`` with zeros for the entries that only ``example`` has."""
    frames = frames.copy()
    for key, value in example.items(True, True):
        if frames.get(key, None) is None:
            frames.set(key, value.new_zeros(torch.Size((len(frames), *value.shape[1:]))))
    return frames


def _concatenated(segments: list[TensorDictBase]) -> TensorDictBase:
    return cat_tds(segments) if len(segments) > 1 else segments[0]
