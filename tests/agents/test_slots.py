"""The data of requests comes from workers through slots of shared memory."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch

from steppe import (
    Collector,
    SerialEnv,
    Trajectories,
)
from steppe.errors import SpecError, WorkerError
from steppe_testing import TextCountingEnv, assert_equal_data
from tests.core.collectors.counters_and_walks import (
    LENGTHS,
    CountTo,
    UniformAgent,
    counters,
    echo,
    ids,
    told,
)
from tests.core.collectors.worker_policies import all_gone


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


def test_a_worker_that_waits_for_a_slot_can_be_stopped() -> None:
    """A worker that waits for a free slot can be cancelled and shut down."""
    with Collector(lambda: counters(1), echo, num_workers=1, num_slots=1, slot_len=1) as collector:
        job = collector.execute(env_info=told([5_000]))
        job.cancel()
        collector.execute(env_info=told([3, 2]))
        assert collector.get().length.tolist() == [3, 2]
        collector.execute(env_info=told([5_000]))
        pids = collector.backend.pool.pids
    assert all_gone(pids)


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


def test_a_step_that_is_not_what_specs_say_is_named() -> None:
    class Growing(CountTo):
        def _observed(self) -> dict[str, torch.Tensor]:
            return {**super()._observed(), "t": torch.arange(1 + (self.t > 2)) + self.t}

    with Collector(lambda: SerialEnv(1, Growing), echo, num_workers=1) as collector:
        collector.execute(env_info=told([9]))
        with pytest.raises(WorkerError, match="t"):
            collector.get()


def test_text_travels_in_messages() -> None:
    with Collector(lambda: TextCountingEnv(4), num_workers=2) as collector:
        collector.execute(n_episodes=3)
        found = collector.get()
    assert found.length.tolist() == [4, 4, 4]
    assert len(found.steps["text"].tolist()[0]) == 4
