"""What becomes of a batch on its way to the caller: split, processed, held back, handed to a replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tensordict import TensorDictBase

from steppe.collectors.trajectories import split_trajectories
from steppe.collectors.whole_trajectories import WholeTrajectories
from steppe.envs import DoneGroup

__all__ = ["Delivery", "Output"]


@dataclass(frozen=True)
class Output:
    """What is asked for of batches.

    Attributes:
        split_trajs: cut them into trajectories.
        postproc: called with each.
        hook: called with each, after ``postproc``.
        replay_buffer: is given each; None is delivered then.
        extend_buffer: False adds each step to the buffer, as it was collected.
        trajs_per_batch: deliver so many whole trajectories; None delivers batches as they come.
        trajs_per_write: how many trajectories go to the buffer in one call.
        traj_format: ``"padded"`` or ``"cat"``.
        reset_at_each_iter: episodes end with their batch.
    """

    split_trajs: bool = False
    postproc: Callable[[TensorDictBase], TensorDictBase] | None = None
    hook: Callable[[TensorDictBase], Any] | None = None
    replay_buffer: Any = None
    extend_buffer: bool = True
    trajs_per_batch: int | None = None
    trajs_per_write: int | None = None
    traj_format: str = "padded"
    reset_at_each_iter: bool = False


#: How far the delivery of a batch is: what has been done with it.
_COLLECTED, _PROCESSED, _CUT, _DELIVERED = range(4)


class Delivery:
    """Takes batches, and gives what the caller asked for.

    A delivery that Ctrl-C interrupts goes on where it was: the batch stays here until it is handed over. The step that
    was interrupted is repeated, which may be a hook or a write of the replay buffer.

    Args:
        output: what the caller asked for.
        groups: the levels of the data that have done entries, the root first.

    Attributes:
        batch: the batch on its way to the caller, and how far it is; None when there is none.
    """

    def __init__(self, output: Output, groups: list[DoneGroup]) -> None:
        self.output = output
        self.batch: tuple[TensorDictBase, int] | None = None
        self._stored = 0
        self.whole = WholeTrajectories(groups) if output.trajs_per_batch is not None else None

    def waiting(self) -> TensorDictBase | None:
        """Whole trajectories, where there are enough of them."""
        whole, number = self.whole, self.output.trajs_per_batch
        if whole is None or number is None or self.output.replay_buffer is not None or len(whole) < number:
            return None
        return whole.take(number, padded=self.output.traj_format == "padded")

    def processed(self, batch: TensorDictBase) -> TensorDictBase:
        """Do with a batch what is asked for, in this order."""
        output = self.output
        if not output.extend_buffer:
            return batch
        if output.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        if output.postproc is not None:
            batch = output.postproc(batch)
        if output.hook is not None:
            output.hook(batch)
        return batch

    @staticmethod
    def begun(batch: TensorDictBase) -> tuple[TensorDictBase, int]:
        """What ``batch`` is set to for a batch that has been collected."""
        return batch, _COLLECTED

    def deliver(self) -> bool:
        """Do with ``batch`` what is asked for; returns whether :meth:`hand_over` has something for the caller."""
        assert self.batch is not None
        batch, done = self.batch
        if done < _PROCESSED:
            self._stored = 0
            batch = self.processed(batch)
            self.batch = batch, _PROCESSED
        if done < _CUT and self.whole is not None:
            running, ended = self.whole.with_batch(batch)
            # In one statement: a batch that is taken twice would have each of its frames twice.
            self.whole.state, self.batch = ({} if self.output.reset_at_each_iter else running, ended), (batch, _CUT)
        if done < _DELIVERED and self.output.replay_buffer is not None:
            self._store(batch)
            self.batch = batch, _DELIVERED
        if self.output.replay_buffer is None and self.whole is not None:
            self.batch = None
            return False
        return True

    def hand_over(self) -> TensorDictBase | None:
        """The batch for the caller; None where a buffer was given it."""
        assert self.batch is not None
        (batch, _), self.batch = self.batch, None
        return batch if self.output.replay_buffer is None else None

    def _store(self, batch: TensorDictBase) -> None:
        """Hand a batch, or the trajectories that have ended, to the replay buffer."""
        buffer = self.output.replay_buffer
        if self.whole is not None:
            while len(self.whole):
                number = len(self.whole) if self.output.trajs_per_write is None else self.output.trajs_per_write
                buffer.extend(self.whole.first(number, padded=False))
                self.whole.forget_first(number)
        elif self.output.extend_buffer:
            buffer.extend(batch)
        else:
            for frame in batch.unbind(-1)[self._stored :]:
                buffer.add(frame)
                self._stored += 1
