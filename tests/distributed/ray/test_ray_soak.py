"""Actors that die at random: right data or a named error, never a hang, and nothing left.

``STEPPE_SOAK=full pytest tests/distributed/ray/test_ray_soak.py`` collects 100,000 frames, which takes some minutes;
``STEPPE_SOAK_SEED=100`` makes other choices.
"""

from __future__ import annotations

import random
import threading
import time
import warnings
from functools import partial
from typing import Any

import psutil
import pytest

pytest.importorskip("ray")

import ray

from steppe_ray import RayCollector
from tests.limits import AT_ONCE
from tests.unsteady import FIRST, FULL, LIMIT, Unsteady, collect_all, kill

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.timeout(1800 if FULL else 240),
    pytest.mark.usefixtures("cluster"),
]

#: Runs, and the frames of each.
RUNS, FRAMES = (10, 10_000) if FULL else (2, 1_000)

#: Actors that are killed in a run. Without an end, actors of a busy machine would be killed before they have started.
KILLS = 12


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_data_is_right_or_the_end_of_an_actor_is_named(seed: int) -> None:
    chance = random.Random(seed)
    restart, sync = seed % 2 == 0, chance.random() < 0.5
    # With restart=True a process also ends by itself, and its replacements do; without, it would end the test early.
    last = FRAMES if restart else 0
    makers = [partial(Unsteady, chance.randrange(10**6), last, by_process=restart) for _ in range(2)]
    arguments: dict[str, Any] = {"frames_per_batch": 100, "total_frames": FRAMES, "batch_timeout": LIMIT}
    config = {"num_cpus": 0.5}
    collector = RayCollector(makers, restart=restart, sync=sync, remote_configs=config, **arguments)
    places, pids = collector.backend.pool.places, set()
    done = threading.Event()

    def kill_at_random() -> None:
        for _ in range(KILLS):
            if done.wait(chance.random() * (8.0 if FULL else 2.0)):
                return
            pids.update(pid for _, pid in places.values())
            kill(places[chance.randrange(2)][1])

    killer = threading.Thread(target=kill_at_random, daemon=True)
    killer.start()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*It is replaced")
        try:
            collect_all(collector, FRAMES)
        finally:
            done.set()
            killer.join(AT_ONCE)
            pids.update(pid for _, pid in places.values())
            collector.shutdown()
    assert_nothing_left(pids)


def assert_nothing_left(pids: set[int]) -> None:
    """The processes of the actors have ended, and the cluster has its resources back."""
    end = time.monotonic() + AT_ONCE
    total = ray.cluster_resources()
    while time.monotonic() < end:
        left = [pid for pid in pids if psutil.pid_exists(pid)]
        free = ray.available_resources()
        if not left and free.get("CPU") == total["CPU"]:
            return
        time.sleep(0.2)
    raise AssertionError(f"left: processes {left}, free {free} of {total}")
