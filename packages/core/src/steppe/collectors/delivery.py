"""What becomes of a batch on its way to the caller: split, processed, moved, handed to a replay buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.trajectories import split_trajectories

__all__ = ["Delivery", "split_and_processed"]


def split_and_processed(
    batch: TensorDictBase,
    *,
    split_trajs: bool,
    postproc: Callable[[TensorDictBase], TensorDictBase] | None,
    hook: Callable[[TensorDictBase], Any] | None,
) -> TensorDictBase:
    """Do with a batch what the arguments of a collector ask for, in this order."""
    if split_trajs:
        batch = split_trajectories(batch, prefix="collector")
    if postproc is not None:
        batch = postproc(batch)
    if hook is not None:
        hook(batch)
    return batch


class Delivery:
    """What becomes of batches that workers have collected.

    Args:
        split_trajs: cut them into trajectories.
        storing_device: where they are moved to.
        postproc: called with each.
        hook: called with each, after ``postproc``.
        replay_buffer: its ``extend`` is called with each, and None is delivered.
    """

    def __init__(
        self,
        *,
        split_trajs: bool,
        storing_device: torch.device | None,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None,
        hook: Callable[[TensorDictBase], Any] | None,
        replay_buffer: Any,
    ) -> None:
        self.split_trajs, self.storing_device = split_trajs, storing_device
        self.postproc, self.hook, self.replay_buffer = postproc, hook, replay_buffer

    def __call__(self, batch: TensorDictBase) -> TensorDictBase | None:
        """Deliver one."""
        if self.storing_device is not None and batch.device != self.storing_device:
            batch = batch.to(self.storing_device)
        batch = split_and_processed(batch, split_trajs=self.split_trajs, postproc=self.postproc, hook=self.hook)
        if self.replay_buffer is None:
            return batch
        self.replay_buffer.extend(batch)
        return None
