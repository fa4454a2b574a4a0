"""Memory that a caller and its workers share."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
import torch

from steppe import ParallelEnv, TransformedEnv
from steppe.errors import WorkerError
from steppe.systems import HAS_PROC
from steppe.transforms import ObservationTransform
from steppe.workers import SharedLock, pickled
from steppe_testing import ArrayCountingEnv

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="another process's memory can be opened through /proc only")


class CountsValues(ObservationTransform):
    """Statistics that all environments have together: how many values there were, and their sum."""

    def __init__(self, lock: SharedLock) -> None:
        super().__init__(["observation"])
        self.register_buffer("seen", torch.zeros(2, dtype=torch.float64).share_memory_())
        self.lock = lock

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        with self.lock:
            count, total = self.seen.tolist()
            self.seen.copy_(torch.tensor([count + 1, total + value[0].item()], dtype=torch.float64))
        return value


def make(transform: CountsValues) -> TransformedEnv:
    return TransformedEnv(ArrayCountingEnv(10_000), transform.clone())


def test_statistics_of_all_workers_lose_no_update():
    """A transform with a shared lock counts the steps of all workers."""
    transform, steps = CountsValues(SharedLock()), 300

    with ParallelEnv(4, partial(make, transform), num_processes=2) as env:
        data = env.rollout(steps)

    count = 4 * (1 + steps)
    assert transform.seen.tolist() == [count, data["next", "observation"][..., 0].sum().item()]


def test_memory_whose_owner_has_let_go_of_it_is_an_error():
    late = pickled({"lock": SharedLock()})

    with pytest.raises(WorkerError, match=r"Shared memory of process \d+ is gone"):
        pickle.loads(late)


def test_tensors_that_are_not_shared_travel_as_copies():
    tensor = torch.zeros(2)

    copy = pickle.loads(pickled(tensor))
    copy += 1

    assert tensor.tolist() == [0, 0]
