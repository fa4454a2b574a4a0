"""Delivery: split and post-process a batch, and write it to the replay buffer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensordict import TensorDictBase

from steppe.collectors.trajectories import split_trajectories
from steppe.specs import Composite

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["COLLECTED", "DELIVERY_SETTINGS", "STORED", "Delivery"]

#: The arguments of a collector that say what to do with a batch; workers get them that deliver their batches.
DELIVERY_SETTINGS = ("split_trajs", "postproc", "trajs_per_batch", "trajs_per_write", "traj_format")

#: The last stage that a batch has completed.
COLLECTED, PROCESSED, STORED = range(3)


class Delivery:
    """Convert collected batches to the caller's batches.

    If Ctrl-C interrupts a delivery, the next call of ``deliver`` repeats the interrupted stage and continues: the batch
    is kept until ``hand_over``. The repeated stage may be a hook or a write of the replay buffer.

    A subclass may hold data back from several batches, as ``steppe_agents.WholeTrajectories`` does.

    Args:
        collector: the collector, whose arguments say what to do with a batch.

    Attributes:
        collector: see above.
        batch: the batch in delivery, None if workers have stored it, and the last stage that it has completed; None
            between deliveries.
    """

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.batch: tuple[TensorDictBase | None, int] | None = None

    def waiting(self) -> TensorDictBase | None:
        """Return data that was held back and is now ready for the caller, which is no longer held back; or None."""
        return None

    def drop_running(self) -> None:
        """Drop the parts of trajectories that have not ended: their episodes do not continue."""

    def drop_all(self) -> None:
        """Drop everything that is held back."""

    def processed(self, batch: TensorDictBase) -> TensorDictBase:
        """Return a batch after ``split_trajs``, ``postproc`` and the hook, in this order."""
        settings = self.collector
        if settings.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        if settings.postproc is not None:
            batch = settings.postproc(batch)
        if settings.post_collect_hook is not None:
            settings.post_collect_hook(batch)
        return batch

    def writers(self, spec: Composite, n: int) -> list[Any] | None:
        """Return what ``n`` workers write their batches with, see ``replay_buffer`` of :class:`~steppe.Collector`.

        Args:
            spec: of a batch of one worker.
            n: the number of workers.

        Returns:
            A writer for each worker; None if batches come to the caller, as they have to for ``post_collect_hook``.
        """
        make = getattr(self.collector.replay_buffer, "writers", None)
        if make is None or self.collector.post_collect_hook is not None:
            return None
        writers: list[Any] | None = make(n, self.processed(spec.zero()))
        return writers

    def store(self, batch: TensorDictBase) -> None:
        """Write a processed batch to the replay buffer, if there is one, and set the stage."""
        if self.collector.replay_buffer is not None:
            self.collector.replay_buffer.extend(batch)
        self.batch = batch, STORED

    def deliver(self) -> bool:
        """Run the remaining stages for ``batch``.

        Returns:
            Whether the caller gets the result of :meth:`hand_over`; False if the batch was held back.
        """
        assert self.batch is not None
        batch, stage = self.batch
        if batch is not None and stage < PROCESSED:
            batch = self.processed(batch)
            self.batch = batch, PROCESSED
        if batch is not None and stage < STORED:
            self.store(batch)
        return True

    def hand_over(self) -> TensorDictBase | None:
        """Return the batch for the caller and end its delivery; None if a replay buffer has stored it."""
        assert self.batch is not None
        (batch, _), self.batch = self.batch, None
        return batch if self.collector.replay_buffer is None else None
