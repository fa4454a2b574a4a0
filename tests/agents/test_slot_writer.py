"""A worker writes steps to slots, waits for free ones, and refuses steps of another layout."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import Collector, Composite, SerialEnv, Unbounded
from steppe.errors import SpecError, WorkerError
from steppe_agents.running_row import RunningRow
from steppe_agents.slot_log import ALIVE, FIRST, FLAGS, LAST, LENGTH, READ, ROW, SLOT, START, VERSION, WRITTEN
from steppe_agents.slot_writer import SlotWriter
from steppe_agents.slots import Columns, Slots
from tests.core.collectors.counters_and_walks import CountTo, counters, echo, told
from tests.core.collectors.worker_policies import all_gone


def writer_of(slots: Slots, worker: int, filled: list[int]) -> SlotWriter:
    return SlotWriter(slots, worker, filled=lambda: filled.append(worker))


def small(n_workers: int = 2) -> Slots:
    """Two lanes and two blocks for each worker, with slots of three steps."""
    return Slots(Columns(Composite(x=Unbounded(())), Composite({})), n_workers, 2, 2, 3, kind="plain")


def test_a_row_over_two_blocks_has_an_entry_of_each() -> None:
    slots, filled = small(), []
    writer, row = writer_of(slots, 1, filled), RunningRow(0, number=7, lane=3, local_lane=1, episode=5, start=0)
    writer.version = 4
    for step in range(5):
        writer.write(TensorDict({"x": torch.full((1,), 1.5 + step)}, [1]), [1])
        writer.make_room([row])

    writer.end(row, alive=True)

    first, last = slots.entries[1][: slots.counts[1][WRITTEN]]
    assert filled == [1]
    assert (first[SLOT], first[START], first[LENGTH], first[FLAGS]) == (5, 0, 3, FIRST)
    assert (last[SLOT], last[START], last[LENGTH], last[FLAGS]) == (7, 0, 2, LAST | ALIVE)
    assert (first[ROW], last[ROW], last[VERSION]) == (7, 7, 4)
    assert slots.steps.tensors["x"][[2, 3], :, 1].tolist() == [[1.5, 2.5, 3.5], [4.5, 5.5, 0.0]]


def test_entries_of_a_long_job_reuse_the_log() -> None:
    slots = small(1)
    writer, n = writer_of(slots, 0, []), slots.capacity + 3

    for number in range(n):
        writer.end(RunningRow(0, number=number, lane=0, local_lane=0, episode=number, start=0), alive=False)

    rows = slots.entries[0][np.arange(n - slots.capacity, n) % slots.capacity][:, ROW]
    assert rows.tolist() == list(range(3, n))
    assert (slots.counts[0][WRITTEN], slots.counts[0][READ]) == (n, 0)


def test_a_step_of_another_dtype_is_refused() -> None:
    writer = writer_of(small(1), 0, [])

    with pytest.raises(SpecError, match=r"'x' has dtype torch\.float64, and had torch\.float32"):
        writer.check(TensorDict({"x": torch.zeros(1, dtype=torch.float64)}, [1]))


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


def test_a_step_that_is_not_what_specs_say_is_named() -> None:
    class Growing(CountTo):
        def _observed(self) -> dict[str, torch.Tensor]:
            return {**super()._observed(), "t": torch.arange(1 + (self.t > 2)) + self.t}

    with Collector(lambda: SerialEnv(1, Growing), echo, num_workers=1) as collector:
        collector.execute(env_info=told([9]))
        with pytest.raises(WorkerError, match="t"):
            collector.get()
