"""Collectors over workers that die at random and are slow at random: right data or a named error, never a hang."""

from __future__ import annotations

import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from steppe import MultiaSyncDataCollector, MultiSyncDataCollector, aSyncDataCollector
from steppe.errors import WorkerError
from steppe_testing import CountingEnv
from tests.core.collectors.test_multi import all_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

FRAMES = 5_000  # for each of 20 seeds: 100,000


class Unsteady(CountingEnv):
    """Counts; now and then it takes its time, and perhaps its process ends at a step of its choice."""

    def __init__(self, seed: int, deadly: bool) -> None:
        super().__init__(17)
        self.random = random.Random(seed)
        self.last = self.random.randrange(1, FRAMES) if deadly else -1
        self.number = 0

    def _step(self, tensordict: Any) -> Any:
        self.number += 1
        if self.number == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.random.random() < 0.01:
            sum(range(self.random.randrange(200_000)))
        return super()._step(tensordict)


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
    makers = [partial(Unsteady, chance.randrange(10**6), chance.random() < 0.4) for _ in range(workers)]
    before = len(list(Path("/proc/self/fd").iterdir()))
    collector = kind(makers, frames_per_batch=100, total_frames=FRAMES)
    pids = collector.worker_group.pool.pids
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
        collector.shutdown()
    assert all_gone(pids)
    del collector
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1, "descriptors are closed, but for the fork server's"
