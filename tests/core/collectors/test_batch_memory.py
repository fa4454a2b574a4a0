"""Large batches of workers are passed to the caller without a copy."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

from steppe import Collector, MultiaSyncDataCollector, MultiSyncDataCollector
from steppe.systems import HAS_FORK
from steppe_testing import assert_equal_data
from tests.core.collectors.screen import Screen

#: Steps in the batch of a worker. Two batches of such frames have about 8 MB.
STEPS = 16


def lockstep(**kwargs: Any) -> Collector:
    return MultiSyncDataCollector([Screen] * 2, frames_per_batch=2 * STEPS, seed=0, **kwargs)


def address(batch: Any) -> int:
    return int(batch["pixels"].data_ptr())


def collect_and_keep(collector: Collector, n: int) -> list[Any]:
    """Return n batches, after checking that later ones do not change them."""
    kept = [next(collector) for _ in range(n)]
    copies = [batch.clone() for batch in kept]
    for _ in range(4):
        next(collector)
    for batch, copy in zip(kept, copies, strict=True):
        assert_equal_data(batch, copy)
    return kept


def test_batches_that_the_caller_keeps_do_not_change() -> None:
    with lockstep() as collector:
        kept = collect_and_keep(collector, 6)
    assert len({address(batch) for batch in kept}) == 6


def test_memory_of_dropped_batches_is_used_again() -> None:
    with lockstep() as collector:
        places = {address(next(collector)) for _ in range(8)}
    assert len(places) <= 3


def test_a_view_of_an_entry_keeps_its_memory() -> None:
    with lockstep() as collector:
        rows = next(collector)["pixels"][1, :, 0, 0]
        expected = rows.clone()
        for _ in range(5):
            next(collector)
        assert torch.equal(rows, expected)


@pytest.mark.parametrize("cat_results", ["stack", 0, -1])
def test_kept_and_copied_batches_are_equal(cat_results: Any) -> None:
    with lockstep(cat_results=cat_results) as collector, lockstep(cat_results=cat_results) as other:
        kept = []
        for _ in range(5):
            batch = next(other)
            kept.append(next(collector))
            assert_equal_data(kept[-1], batch)


def test_workers_that_go_on_at_once_leave_kept_batches() -> None:
    with MultiaSyncDataCollector([Screen] * 2, frames_per_batch=STEPS * 2, seed=0) as collector:
        collect_and_keep(collector, 8)


def test_return_same_td_yields_one_memory() -> None:
    with lockstep(return_same_td=True) as collector:
        places = {address(next(collector)) for _ in range(4)}
    assert len(places) == 1


def test_batches_outlive_their_collector() -> None:
    with lockstep() as collector:
        batch = next(collector)
        copy = batch.clone()
    del collector
    assert_equal_data(batch, copy)


@pytest.mark.skipif(not HAS_FORK, reason="this system does not fork")
def test_memory_that_a_forked_process_may_read_is_not_reused() -> None:
    with lockstep() as collector:
        batch = next(collector)
        place, values = address(batch), np.asarray(batch["pixels"][:, :, 0, 0]).copy()
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(writer)
                os.read(reader, 1)  # until the parent has dropped the batch and collected others
                os._exit(0 if np.array_equal(np.asarray(batch["pixels"][:, :, 0, 0]), values) else 1)
            finally:
                os._exit(2)
        os.close(reader)
        del batch
        assert place not in {address(next(collector)) for _ in range(6)}
        os.close(writer)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
