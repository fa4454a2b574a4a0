"""The data of requests comes from workers through slots of shared memory."""

from __future__ import annotations

import pytest

from steppe import (
    Collector,
)
from steppe.errors import SpecError
from steppe_testing import TextCountingEnv
from tests.core.collectors.counters_and_walks import (
    LENGTHS,
    counters,
    echo,
    told,
)


def test_a_seed_leaves_the_slots_in_use() -> None:
    with Collector(lambda: counters(2), echo, num_workers=2, num_slots=4, slot_len=2) as collector:
        for seed in (1, 2):
            collector.set_seed(seed)
            collector.execute(env_info=told(LENGTHS))
            assert collector.get().length.tolist() == LENGTHS


def test_fewer_slots_than_environments_are_refused() -> None:
    with pytest.raises(SpecError, match="num_slots=3 is less than the 4 environments"):
        Collector(lambda: counters(2), echo, num_workers=2, num_slots=3)
    with pytest.raises(SpecError, match="slot_len must be a whole number"):
        Collector(lambda: counters(2), echo, num_workers=2, slot_len=0)
    with pytest.raises(TypeError, match="num_slots= is for workers"):
        Collector(lambda: counters(2), echo, num_slots=3)


def test_text_travels_in_messages() -> None:
    with Collector(lambda: TextCountingEnv(4), num_workers=2) as collector:
        collector.execute(n_episodes=3)
        found = collector.get()
    assert found.length.tolist() == [4, 4, 4]
    assert len(found.steps["text"].tolist()[0]) == 4
