"""Requests to workers that die at random and are slow at random: right rows or a named error, never a hang.

``STEPPE_SOAK=full pytest tests/agents/test_request_soak.py`` sends 30 requests with each of 20 seeds instead of 4.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
import torch

from steppe import Collector, SerialEnv
from steppe.errors import WorkerError
from tests.core.collectors.worker_policies import all_gone
from tests.unsteady import FIRST, FULL, LIMIT, Unsteady

REQUESTS = 30 if FULL else 4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800 if FULL else 180),
    pytest.mark.usefixtures("nothing_left"),
]


def lanes(seeds: list[int], deadly: list[bool], array_path: bool) -> SerialEnv:
    return SerialEnv(
        len(seeds),
        [
            partial(Unsteady, seed, 40 * REQUESTS * dies, length=5 + seed % 13, array_path=array_path)
            for seed, dies in zip(seeds, deadly, strict=True)
        ],
    )


def assert_counts(rows: Any) -> None:
    """Each row is a whole episode, from 0 on without a gap, with zeros after its end."""
    mask = rows.mask()
    time = torch.arange(mask.shape[1]).expand_as(mask)
    count = rows.steps["observation"].squeeze(-1)
    following = rows.steps["next", "observation"].squeeze(-1)
    assert torch.equal(count[mask].long(), time[mask])
    assert torch.equal(following[mask].long(), time[mask] + 1)
    assert count[~mask].eq(0).all()
    assert torch.equal(rows.steps["next", "done"].squeeze(-1).sum(1), torch.ones(len(rows), dtype=torch.int64))
    assert rows.last()["next", "done"].all()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (20 if FULL else 5)))
def test_rows_are_right_or_the_end_of_a_worker_is_named(seed: int) -> None:
    chance = random.Random(seed)
    makers = [
        partial(
            lanes,
            [chance.randrange(10**6) for _ in range(3)],
            [chance.random() < 0.15 for _ in range(3)],
            seed % 2 == 0,
        )
        for _ in range(2)
    ]
    slots = chance.choice([{}, {"num_slots": 6, "slot_len": chance.randrange(1, 9)}])
    collector = Collector(makers, num_workers=2, seed=seed, batch_timeout=LIMIT, **slots)
    pids, numbers = collector.backend.pool.pids, set()
    try:
        for _ in range(REQUESTS):
            n = chance.randrange(1, 25)
            job = collector.execute(n_episodes=n)
            way = chance.randrange(4)
            if way == 0:
                parts = [job.result()]
            elif way == 3:
                while job.progress()[0] < n // 2:
                    pass
                job.cancel()
                parts = [part] if (part := job.partial()) is not None else []
            else:
                parts = []
                while sum(len(part) for part in parts) < n:
                    part = collector.get(partial=True)
                    parts += [] if part is None else [part]
            rows = [row for part in parts for row in part.row.tolist()]
            assert len(rows) == len(set(rows))
            assert way == 3 or sorted(rows) == list(range(n))
            for part in parts:
                assert_counts(part)
                episodes = set(part.episode.tolist())
                assert len(episodes) == len(part)
                assert not episodes & numbers
                numbers |= episodes
    except WorkerError as error:
        assert "ended unexpectedly" in str(error)  # noqa: PT017 - only some runs fail
        assert all_gone(pids)
    finally:
        collector.shutdown()
    assert all_gone(pids)
