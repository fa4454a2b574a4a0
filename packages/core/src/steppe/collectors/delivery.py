"""Delivery: split and post-process a batch, hold back unfinished trajectories, fill the replay buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensordict import TensorDictBase

from steppe.collectors.trajectories import split_trajectories
from steppe.collectors.whole_trajectories import WholeTrajectories
from steppe.envs import DoneGroup

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["Delivery"]


#: The last stage that a batch has completed.
_COLLECTED, _PROCESSED, _CUT, _DELIVERED = range(4)


class Delivery:
    """Converts collected batches to the caller's batches.

    If Ctrl-C interrupts a delivery, the next call of ``deliver`` repeats the interrupted stage and continues: the batch
    is kept until ``hand_over``. The repeated stage may be a hook or a write of the replay buffer.

    Args:
        settings: the collector, whose arguments of these names say what to do with a batch.
        groups: the levels of the data that have done entries, the root first.

    Attributes:
        batch: the batch in delivery and the last stage that it has completed; None between deliveries.
        whole: trajectories that span several batches; None without ``trajs_per_batch``.
    """

    def __init__(self, settings: Collector, groups: list[DoneGroup]) -> None:
        self._settings = settings
        self.batch: tuple[TensorDictBase, int] | None = None
        self.whole = WholeTrajectories(groups) if settings.trajs_per_batch is not None else None

    def waiting(self) -> TensorDictBase | None:
        """Return ``trajs_per_batch`` whole trajectories if enough have ended, otherwise None."""
        whole, number = self.whole, self._settings.trajs_per_batch
        if whole is None or number is None or self._settings.replay_buffer is not None or len(whole) < number:
            return None
        return whole.take(number, padded=self._settings.traj_format == "padded")

    def processed(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a batch after ``split_trajs``, ``postproc`` and the hook, in this order."""
        settings = self._settings
        if settings.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        if settings.postproc is not None:
            batch = settings.postproc(batch)
        if settings.post_collect_hook is not None:
            settings.post_collect_hook(batch)
        return batch

    @staticmethod
    def begun(batch: TensorDictBase) -> tuple[TensorDictBase, int]:
        """Return the value of the attribute ``batch`` for a batch that was just collected."""
        return batch, _COLLECTED

    def deliver(self) -> bool:
        """Run the remaining stages for ``batch``.

        Returns:
            Whether the caller gets the result of :meth:`hand_over`; False if the batch was held back.
        """
        assert self.batch is not None
        batch, stage = self.batch
        if stage < _PROCESSED:
            batch = self.processed(batch)
            self.batch = batch, _PROCESSED
        if stage < _CUT and self.whole is not None:
            running, ended = self.whole.with_batch(batch)
            # In one statement, so that Ctrl-C cannot make the next call add the frames of this batch twice.
            self.whole.state, self.batch = ({} if self._settings.reset_at_each_iter else running, ended), (batch, _CUT)
        if stage < _DELIVERED and self._settings.replay_buffer is not None:
            self._store(batch)
            self.batch = batch, _DELIVERED
        if self._settings.replay_buffer is None and self.whole is not None:
            self.batch = None
            return False
        return True

    def hand_over(self) -> TensorDictBase | None:
        """Return the batch for the caller and end its delivery; None if a replay buffer has stored it."""
        assert self.batch is not None
        (batch, _), self.batch = self.batch, None
        return batch if self._settings.replay_buffer is None else None

    def _store(self, batch: TensorDictBase) -> None:
        """Store a batch, or the trajectories that have ended, in the replay buffer."""
        buffer = self._settings.replay_buffer
        if self.whole is not None:
            while len(self.whole):
                number = len(self.whole) if self._settings.trajs_per_write is None else self._settings.trajs_per_write
                buffer.extend(self.whole.first(number, padded=False))
                self.whole.forget_first(number)
        else:
            buffer.extend(batch)
