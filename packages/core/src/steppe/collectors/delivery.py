"""Delivery: split and post-process a batch, and fill the replay buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tensordict import TensorDictBase

from steppe.collectors.trajectories import split_trajectories
from steppe.envs import DoneGroup
from steppe.registry import find_class

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["Delivery"]


#: The last stage that a batch has completed.
_COLLECTED, _PROCESSED, _CUT, _DELIVERED = range(4)


#: The segments of running trajectories by id, and the trajectories that have ended.
_Trajectories = tuple[dict[int, list[TensorDictBase]], list[TensorDictBase]]


class WholeTrajectories(Protocol):
    """Collects whole trajectories: ``steppe_agents.WholeTrajectories``, which documents each member."""

    state: _Trajectories

    def with_batch(self, batch: TensorDictBase) -> _Trajectories:
        """Return the state after a batch."""

    def waiting(self) -> TensorDictBase | None:
        """Return and drop the trajectories that the caller gets next; None if not enough have ended."""

    def store(self, buffer: Any) -> None:
        """Write the trajectories that have ended to a replay buffer, and drop them."""

    def drop_running(self) -> None:
        """Drop the trajectories that have not ended."""

    def drop_all(self) -> None:
        """Drop all trajectories."""


class Delivery:
    """Converts collected batches to the caller's batches.

    If Ctrl-C interrupts a delivery, the next call of ``deliver`` repeats the interrupted stage and continues: the batch
    is kept until ``hand_over``. The repeated stage may be a hook or a write of the replay buffer.

    Args:
        settings: the collector, whose arguments of these names say what to do with a batch.
        groups: the levels of the data that have done entries, the root first.

    Raises:
        ClassNotFound: ``trajs_per_batch`` is set, and steppe-agents is not installed.

    Attributes:
        batch: the batch in delivery and the last stage that it has completed; None between deliveries.
        whole: trajectories that span several batches; None without ``trajs_per_batch``.
    """

    def __init__(self, settings: Collector, groups: list[DoneGroup]) -> None:
        self._settings = settings
        self.batch: tuple[TensorDictBase, int] | None = None
        self.whole: WholeTrajectories | None = None
        if settings.trajs_per_batch is not None:
            self.whole = find_class("collector", "WholeTrajectories")(
                groups,
                number=settings.trajs_per_batch,
                padded=settings.traj_format == "padded",
                per_write=settings.trajs_per_write,
            )

    def waiting(self) -> TensorDictBase | None:
        """Return ``trajs_per_batch`` whole trajectories if enough have ended, otherwise None."""
        if self.whole is None or self._settings.replay_buffer is not None:
            return None
        return self.whole.waiting()

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
        buffer = self._settings.replay_buffer
        if stage < _DELIVERED and buffer is not None:
            if self.whole is not None:
                self.whole.store(buffer)
            else:
                buffer.extend(batch)
            self.batch = batch, _DELIVERED
        if buffer is None and self.whole is not None:
            self.batch = None
            return False
        return True

    def hand_over(self) -> TensorDictBase | None:
        """Return the batch for the caller and end its delivery; None if a replay buffer has stored it."""
        assert self.batch is not None
        (batch, _), self.batch = self.batch, None
        return batch if self._settings.replay_buffer is None else None
