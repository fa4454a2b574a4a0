"""Collectors over workers that die at random and are slow at random: right data or a named error, never a hang.

Each of 20 seeds collects a twentieth of 100,000 frames through each collector over workers. ``STEPPE_SOAK=full pytest
tests/core/collectors/test_soak.py`` collects all of them with each seed, which takes some minutes.
"""

from __future__ import annotations

import random
import threading
from functools import partial
from typing import Any

import pytest

from steppe import MultiaSyncDataCollector, MultiSyncDataCollector, aSyncDataCollector
from tests.core.collectors.worker_policies import all_gone
from tests.limits import CHILD
from tests.unsteady import FULL, LIMIT, Unsteady, collect_all, kill

FRAMES = 100_000 if FULL else 5_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800 if FULL else 120),
    pytest.mark.usefixtures("nothing_left"),
]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector, aSyncDataCollector])
def test_data_is_right_or_the_end_of_a_worker_is_named(kind: Any, seed: int) -> None:
    chance = random.Random(seed)
    workers = 1 if kind is aSyncDataCollector else 2
    array_path = FULL or seed % 2 == 0
    makers = [
        partial(Unsteady, chance.randrange(10**6), FRAMES * (chance.random() < 0.3), array_path=array_path)
        for _ in range(workers)
    ]
    collector = kind(makers, frames_per_batch=100, total_frames=FRAMES, batch_timeout=LIMIT)
    pids = collector.backend.pool.pids
    killer = None
    if chance.random() < 0.2:  # from outside, at whatever it does
        killer = threading.Timer(chance.random() * FRAMES / 20_000, kill, (chance.choice(pids),))
        killer.start()
    try:
        collect_all(collector, FRAMES)
    finally:
        if killer is not None:
            killer.cancel()
            killer.join(CHILD)
        collector.shutdown()
    assert all_gone(pids)
