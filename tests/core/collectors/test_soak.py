"""Collectors over workers that die at random and are slow at random: right data or a named error, never a hang.

Each of 20 seeds collects a twentieth of 100,000 frames through each collector over workers. ``STEPPE_SOAK=full pytest
tests/core/collectors/test_soak.py`` collects all of them with each seed, which takes some minutes.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from functools import partial
from typing import Any

import pytest
import torch

from steppe import MultiaSyncDataCollector, MultiSyncDataCollector, aSyncDataCollector
from steppe.errors import WorkerError
from steppe_testing import ArrayCountingEnv
from tests.core.collectors.worker_policies import all_gone
from tests.limits import CHILD

FULL = os.environ.get("STEPPE_SOAK") == "full"
FRAMES = 100_000 if FULL else 5_000
LIMIT = 60.0  # seconds that a batch may take

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800 if FULL else 120),
    pytest.mark.usefixtures("nothing_left"),
]


class Unsteady(ArrayCountingEnv):
    """Counts; now and then it takes its time, and perhaps its process ends at a step of its choice."""

    def __init__(self, seed: int, deadly: bool, array_path: bool) -> None:
        super().__init__(17, array_path=array_path)
        self.random = random.Random(seed)
        self.last = self.random.randrange(1, FRAMES) if deadly else -1
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


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector, aSyncDataCollector])
def test_data_is_right_or_the_end_of_a_worker_is_named(kind: Any, seed: int) -> None:
    chance = random.Random(seed)
    workers = 1 if kind is aSyncDataCollector else 2
    array_path = FULL or seed % 2 == 0
    makers = [partial(Unsteady, chance.randrange(10**6), chance.random() < 0.3, array_path) for _ in range(workers)]
    collector = kind(makers, frames_per_batch=100, total_frames=FRAMES, batch_timeout=LIMIT)
    pids = collector.backend.pool.pids
    killer = None
    if chance.random() < 0.2:  # from outside, at whatever it does
        killer = threading.Timer(chance.random() * FRAMES / 20_000, kill, (chance.choice(pids),))
        killer.start()
    frames = 0
    try:
        for batch in collector:
            assert_counts(batch)
            frames += batch.numel()
        assert frames == FRAMES
    except WorkerError as error:
        if "ended unexpectedly" not in str(error):
            raise
    finally:
        if killer is not None:
            killer.cancel()
            killer.join(CHILD)
        collector.shutdown()
        print(f"{frames} frames")  # which -rA shows
    assert all_gone(pids)


def kill(pid: int) -> None:
    """Kill a worker that may have ended already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
