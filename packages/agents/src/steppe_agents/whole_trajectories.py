"""WholeTrajectories: collect the frames of trajectories that span several batches, until these have ended."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors import STORED, Collector, Delivery, split_trajectories
from steppe.envs import rows_ended

__all__ = ["WholeTrajectories"]

_State = tuple[dict[int, list[TensorDictBase]], list[TensorDictBase]]


class WholeTrajectories(Delivery):
    """Converts batches of frames to whole trajectories, in the order in which they ended.

    Each method computes its result first and assigns it last, so Ctrl-C loses no frame of a trajectory.

    A collector makes it for ``trajs_per_batch=``.

    >>> from steppe import Collector, SerialEnv
    >>> from steppe_testing import CountingEnv
    >>> env = SerialEnv(2, [lambda: CountingEnv(max_steps=2), lambda: CountingEnv(max_steps=3)])
    >>> with Collector(env, frames_per_batch=8, trajs_per_batch=3) as collector:  # makes a WholeTrajectories
    ...     trajectories = next(collector)
    >>> trajectories.shape, trajectories["collector", "mask"].sum(-1)
    (torch.Size([3, 3]), tensor([2, 3, 2]))

    Args:
        collector: the collector. ``trajs_per_batch`` is how many trajectories the caller gets at once. With
            ``traj_format="padded"`` these are ``[trajectories, longest]``, padded, with a mask; with ``"cat"`` they are
            ``[frames]``, one trajectory after the other. ``trajs_per_write`` is how many trajectories are written to a
            replay buffer at once; None: all that have ended.

    Attributes:
        state: the segments of running trajectories by id, and the trajectories that have ended. Both are replaced,
            never changed in place.
    """

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        assert collector.trajs_per_batch is not None
        self._number = collector.trajs_per_batch
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
        ends = rows_ended(flat.get("next"), self.collector.backend.done_groups)
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
        if self.collector.replay_buffer is not None or len(self) < self._number:
            return None
        frames = self._first(self._number)
        trajectories = (
            split_trajectories(frames, prefix="collector") if self.collector.traj_format == "padded" else frames
        )
        self._forget_first(self._number)
        return trajectories

    def store(self, batch: TensorDictBase) -> None:
        """Add the frames of a processed batch, and set the stage."""
        running, ended = self.with_batch(batch)
        # In one statement, so that Ctrl-C cannot make the next call add the frames of this batch twice.
        self.state, self.batch = ({} if self.collector.reset_at_each_iter else running, ended), (batch, STORED)

    def deliver(self) -> bool:
        """Run the remaining stages for ``batch``.

        With a replay buffer, write the trajectories that have ended to it, ``[frames]`` each time, and drop them.
        """
        super().deliver()
        buffer, per_write = self.collector.replay_buffer, self.collector.trajs_per_write
        if buffer is None:
            self.batch = None
            return False
        while len(self):
            number = len(self) if per_write is None else per_write
            buffer.extend(self._first(number))
            self._forget_first(number)
        return True

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
