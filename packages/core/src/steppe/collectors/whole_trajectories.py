"""Trajectories that reach over several batches, held back until they have ended."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors.trajectories import row_ends, split_trajectories
from steppe.envs import DoneGroup

__all__ = ["WholeTrajectories"]

_State = tuple[dict[int, list[TensorDictBase]], list[TensorDictBase]]


class WholeTrajectories:
    """Takes batches of frames, and gives trajectories that have ended, in the order in which they did.

    Every method works out its result first and assigns it last, so Ctrl-C loses no frame of a trajectory.

    Attributes:
        state: the pieces of running trajectories by id, and the trajectories that have ended. Neither is changed in
            place.

    Args:
        groups: the levels of the data that have done entries, the root first.
    """

    def __init__(self, groups: list[DoneGroup]) -> None:
        self._groups = groups
        self.state: _State = ({}, [])

    def __len__(self) -> int:
        """How many trajectories have ended and are still here."""
        return len(self.state[1])

    def add(self, batch: TensorDictBase) -> None:
        """Take frames ``[*B, T]`` with ``("collector", "traj_ids")``; those that end in one batch, by their ids."""
        self.state = self.with_batch(batch)

    def with_batch(self, batch: TensorDictBase) -> _State:
        """Return the state after a batch, without taking it."""
        running, ended = {number: list(pieces) for number, pieces in self.state[0].items()}, list(self.state[1])
        flat = batch.reshape(-1)
        before = next((piece for pieces in (*running.values(), ended) for piece in pieces), None)
        if before is not None and set(flat.keys(True, True)) != set(before.keys(True, True)):
            # A policy has begun to act after random actions: what it writes is 0 in the steps before.
            running = {number: [_with_zeros(piece, flat) for piece in pieces] for number, pieces in running.items()}
            ended = [_with_zeros(piece, flat) for piece in ended]
        ids = flat.get(("collector", "traj_ids"))
        if bool((ids < 0).any()):  # an interrupted batch has frames that were not collected
            flat = flat[ids >= 0]
            ids = ids[ids >= 0]
        order = ids.argsort(stable=True)
        flat = flat[order]
        ends = row_ends(flat.get("next"), self._groups)
        numbers, lengths = ids[order].unique_consecutive(return_counts=True)
        for number, piece, last in zip(numbers.tolist(), flat.split(lengths.tolist()), lengths.cumsum(0), strict=True):
            running.setdefault(number, []).append(piece)
            if ends[last - 1]:
                ended.append(_joined(running.pop(number)))
        return running, ended

    def drop_running(self, numbers: list[int] | None = None) -> None:
        """Forget trajectories that have not ended: those of these ids, or all."""
        running, ended = self.state
        dropped = running if numbers is None else set(numbers)
        self.state = {number: pieces for number, pieces in running.items() if number not in dropped}, ended

    def drop_all(self) -> None:
        """Forget what has ended too."""
        self.state = {}, []

    def take(self, number: int, *, padded: bool) -> TensorDictBase:
        """Return trajectories: ``[number, longest]`` padded with a mask, or one after the other, ``[frames]``."""
        found = self.first(number, padded=padded)
        self.forget_first(number)
        return found

    def first(self, number: int, *, padded: bool) -> TensorDictBase:
        """Return the same, and keep them."""
        frames = _joined(self.state[1][:number])
        return split_trajectories(frames, prefix="collector") if padded else frames

    def forget_first(self, number: int) -> None:
        """Forget the trajectories that ``first`` returns."""
        self.state = self.state[0], self.state[1][number:]


def _with_zeros(piece: TensorDictBase, example: TensorDictBase) -> TensorDictBase:
    """``piece`` with zeros for the entries that it does not have, and ``example`` has."""
    piece = piece.copy()
    for key, value in example.items(True, True):
        if piece.get(key, None) is None:
            piece.set(key, value.new_zeros(torch.Size((len(piece), *value.shape[1:]))))
    return piece


def _joined(pieces: list[TensorDictBase]) -> TensorDictBase:
    return cat_tds(pieces) if len(pieces) > 1 else pieces[0]
