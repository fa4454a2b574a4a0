"""Environments whose process dies at random, and what holds for every batch of theirs."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import torch

from steppe.errors import WorkerError
from steppe_testing import ArrayCountingEnv

__all__ = ["FIRST", "FULL", "LIMIT", "Unsteady", "collect_all", "kill"]

#: Whether the soak tests run at their full length.
FULL = os.environ.get("STEPPE_SOAK") == "full"

#: The first seed of the soak tests, so that they can be repeated with other choices.
FIRST = int(os.environ.get("STEPPE_SOAK_SEED", "0"))

#: Seconds that a batch may take.
LIMIT = 60.0


class Unsteady(ArrayCountingEnv):
    """Counts; now and then it takes its time, and its process may end at a step of its choice.

    Args:
        seed: of its choices.
        last: the highest number of the step in which the process ends; 0: it does not.
        length: the number of steps of an episode.
        array_path: see :class:`ArrayCountingEnv`.
        by_process: a process that replaces another one makes choices of its own.
    """

    def __init__(
        self, seed: int, last: int, *, length: int = 17, array_path: bool = True, by_process: bool = False
    ) -> None:
        super().__init__(length, array_path=array_path)
        self.random = random.Random(seed + os.getpid() * by_process)
        self.last = self.random.randrange(1, last) if last else -1
        self.number = 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.number += 1
        if self.number == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.random.random() < 0.01:
            sum(range(self.random.randrange(200_000)))
        return super().step_into(action, out)


def collect_all(collector: Any, frames: int) -> str:
    """Collect until the end, or until the end of a worker is named; every batch is right, and none takes long.

    Args:
        collector: of ``Unsteady`` environments. It is not shut down.
        frames: how many it collects if no worker ends.

    Returns:
        The error that names the worker; empty if there was none.
    """
    collected, slowest, ended = 0, 0.0, ""
    begun = time.monotonic()
    try:
        for batch in collector:
            slowest = max(slowest, time.monotonic() - begun)
            _assert_counts(batch)
            collected += batch.numel()
            begun = time.monotonic()
        assert collected == frames
    except WorkerError as error:
        ended = str(error)
        if "ended unexpectedly" not in ended:
            raise
    print(f"{collected} frames, the slowest batch took {slowest:.1f} s, {ended[:90]!r}")  # which -rA shows
    assert slowest < LIMIT
    return ended


def _assert_counts(batch: Any) -> None:
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
