"""Nodes that exchange messages through GPUs: each needs one of its own, and so does the collector."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore

from steppe import SyncDataCollector
from steppe.errors import BackendError
from steppe_distributed import DistributedDataCollector
from steppe_distributed.channel import device_of, new_groups
from steppe_testing import ArrayCountingEnv, assert_equal_data
from tests.distributed.in_time import in_time

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="nccl needs a GPU")


def make() -> ArrayCountingEnv:
    return ArrayCountingEnv(4, noise=True)


def test_a_group_of_one_rank_works_through_the_gpu() -> None:
    calls, answers = new_groups("nccl", HashStore(), 0, 1)
    values = torch.arange(3.0, device=device_of("nccl", 0))
    for group in (calls, answers):
        group.allreduce([values]).wait(timedelta(seconds=60))

    assert values.tolist() == [0.0, 1.0, 2.0]


def test_more_processes_than_gpus_are_refused() -> None:
    nodes = torch.cuda.device_count()
    with in_time(), pytest.raises(BackendError, match=f"has {nodes} for the collector and {nodes} nodes"):
        DistributedDataCollector([make] * nodes, frames_per_batch=4, backend="nccl")


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="nccl connects no two processes on one GPU")
def test_batches_arrive_through_gpus() -> None:
    with SyncDataCollector(make, frames_per_batch=60_000, seed=1) as collector:
        expected = next(collector).clone()
    with DistributedDataCollector(make, frames_per_batch=60_000, seed=1, backend="nccl") as collector:
        assert_equal_data(next(collector), expected)
