"""Nodes that die at random: right data or a named error, never a hang, and nothing left.

``STEPPE_SOAK=full pytest tests/distributed/distributed/test_node_soak.py`` collects 100,000 frames;
``STEPPE_SOAK_SEED=100`` makes other choices.
"""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from steppe_distributed import DistributedDataCollector
from tests.limits import AT_ONCE
from tests.unsteady import FIRST, FULL, LIMIT, Unsteady, collect_all, kill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800 if FULL else 240)]

#: Runs, and the frames of each.
RUNS, FRAMES = (20, 5_000) if FULL else (2, 1_000)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_data_is_right_or_the_end_of_a_node_is_named(seed: int) -> None:
    chance = random.Random(seed)
    deadly, from_outside = chance.random() < 0.3, seed % 3 == 1
    makers = [partial(Unsteady, chance.randrange(10**6), FRAMES if deadly else 0) for _ in range(2)]
    arguments: dict[str, Any] = {"frames_per_batch": 100, "total_frames": FRAMES, "batch_timeout": LIMIT}
    collector = DistributedDataCollector(makers, sync=chance.random() < 0.5, **arguments)
    pids = {int(collector.backend.pool.store.get(f"ready{rank}")) for rank in (1, 2)}
    port = collector.backend.pool.meeting.port
    killer = threading.Timer(chance.random() * FRAMES / 5_000, kill, (chance.choice(sorted(pids)),))
    if from_outside:
        killer.start()
    try:
        collect_all(collector, FRAMES)
    finally:
        killer.cancel()
        collector.shutdown()
    del collector
    gc.collect()
    end = time.monotonic() + AT_ONCE
    while left := [pid for pid in pids if psutil.pid_exists(pid)]:
        assert time.monotonic() < end, left
        time.sleep(0.1)
    assert not [each for each in psutil.net_connections() if each.status == "LISTEN" and each.laddr.port == port]
    names = os.listdir("/dev/shm") if Path("/dev/shm").exists() else []
    assert not [name for name in names for pid in (*pids, os.getpid()) if f"_{pid}_" in name]
