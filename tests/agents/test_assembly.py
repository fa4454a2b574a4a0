"""The caller assembles rows from slots that are read and filled many times."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from steppe import Collector, Trajectories
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import UniformAgent, counters, echo, ids, told


@pytest.mark.parametrize("store", ["first", "all", "none"])
def test_few_short_slots_carry_any_number_of_long_rows(store: str) -> None:
    lengths = [1 + (7 * row) % 30 for row in range(20)]

    def collect(**slots: int) -> tuple[Trajectories, int]:
        with Collector(
            lambda: counters(2), UniformAgent(), num_workers=2, seed=1, store_agent_state=store, **slots
        ) as collector:
            collector.execute(agent_info=ids("agent_id", 20), env_info=told(lengths))
            found = collector.get()
            before = shared_memory(collector)
            collector.execute(agent_info=ids("agent_id", 40), env_info=told(lengths * 2))
            collector.get()
            assert shared_memory(collector) == before, "whatever is asked for"
            return found, before

    few, little = collect(num_slots=4, slot_len=3)
    many, much = collect(num_slots=1000)
    assert few.length.tolist() == lengths
    assert_equal_data(few.steps, many.steps)
    assert torch.equal(few.lane, many.lane)
    if store != "none":
        assert few.agent_state["timestep"].eq(0).all()
        assert torch.equal(few.agent_state["timestep"], many.agent_state["timestep"])
    else:
        assert few.agent_state is None
    assert little < much


def shared_memory(collector: Any) -> int:
    """Bytes of the shared memory that this process has."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text().splitlines()
    ranges = [line.split()[0].split("-") for line in maps if "memfd:" in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in ranges)


def test_reused_slots_have_clean_padding() -> None:
    with Collector(lambda: counters(2), echo, num_workers=2, num_slots=4, slot_len=5) as collector:
        for lengths in ([50] * 8, [1, 7, 2, 3, 9, 1, 1, 4], [5, 5, 1, 10]):
            collector.execute(env_info=told(lengths))
            found = collector.get()
            assert found.length.tolist() == lengths
            padding = found.steps[~found.mask()]
            assert all((padding[key] == 0).all() for key in padding.keys(True, True))
