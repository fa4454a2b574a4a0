"""Environments whose process dies at random, and what holds for every batch of theirs."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

import torch

from steppe_testing import ArrayCountingEnv

__all__ = ["FULL", "LIMIT", "Unsteady", "assert_counts", "kill"]

#: Whether the soak tests run at their full length.
FULL = os.environ.get("STEPPE_SOAK") == "full"

#: Seconds that a batch may take.
LIMIT = 60.0


class Unsteady(ArrayCountingEnv):
    """Counts; now and then it takes its time, and its process may end at a step of its choice.

    Args:
        seed: of its choices.
        last: the highest number of the step in which the process ends; 0: it does not.
    """

    def __init__(self, seed: int, last: int) -> None:
        super().__init__(17)
        self.random = random.Random(seed + os.getpid() * (last > 0))
        self.last = self.random.randrange(1, last) if last else -1
        self.number = 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.number += 1
        if self.number == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.random.random() < 0.01:
            sum(range(self.random.randrange(200_000)))
        return super().step_into(action, out)


def assert_counts(batch: Any) -> None:
    """Each frame of a trajectory follows the one before."""
    ids, count = batch["collector", "traj_ids"], batch["observation"].squeeze(-1)
    following = batch["next", "observation"].squeeze(-1)
    assert torch.equal(following, count + 1)
    same = ids[..., 1:] == ids[..., :-1]
    assert torch.equal(count[..., 1:][same], following[..., :-1][same])
    assert (count[..., 1:][~same] == 0).all()


def kill(pid: int) -> None:
    """Kill a process that may have ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
