"""Trajectories that reach over several batches, held back until they have ended."""

from __future__ import annotations

from tensordict import TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors.trajectories import row_ends, split_trajectories
from steppe.envs import DoneGroup

__all__ = ["WholeTrajectories"]


class WholeTrajectories:
    """Takes batches of frames, and gives trajectories that have ended, in the order in which they did.

    Args:
        groups: the levels of the data that have done entries, the root first.
    """

    def __init__(self, groups: list[DoneGroup]) -> None:
        self._groups = groups
        self._running: dict[int, list[TensorDictBase]] = {}
        self._ended: list[TensorDictBase] = []

    def __len__(self) -> int:
        """How many trajectories have ended and are still here."""
        return len(self._ended)

    def add(self, batch: TensorDictBase) -> None:
        """Take frames ``[*B, T]`` with ``("collector", "traj_ids")``; those that end in one batch, by their ids."""
        flat = batch.reshape(-1)
        ids = flat.get(("collector", "traj_ids"))
        if bool((ids < 0).any()):  # an interrupted batch has frames that were not collected
            flat = flat[ids >= 0]
            ids = ids[ids >= 0]
        order = ids.argsort(stable=True)
        flat = flat[order]
        ends = row_ends(flat.get("next"), self._groups)
        numbers, lengths = ids[order].unique_consecutive(return_counts=True)
        for number, piece, last in zip(numbers.tolist(), flat.split(lengths.tolist()), lengths.cumsum(0), strict=True):
            self._running.setdefault(number, []).append(piece)
            if ends[last - 1]:
                self._ended.append(_joined(self._running.pop(number)))

    def drop_running(self, numbers: list[int] | None = None) -> None:
        """Forget trajectories that have not ended: those of these ids, or all."""
        for number in list(self._running) if numbers is None else numbers:
            self._running.pop(number, None)

    def drop_all(self) -> None:
        """Forget what has ended too."""
        self._running.clear()
        self._ended.clear()

    def take(self, number: int, *, padded: bool) -> TensorDictBase:
        """Return trajectories: ``[number, longest]`` padded with a mask, or one after the other, ``[frames]``."""
        taken, self._ended = self._ended[:number], self._ended[number:]
        frames = _joined(taken)
        return split_trajectories(frames, prefix="collector") if padded else frames


def _joined(pieces: list[TensorDictBase]) -> TensorDictBase:
    return cat_tds(pieces) if len(pieces) > 1 else pieces[0]
