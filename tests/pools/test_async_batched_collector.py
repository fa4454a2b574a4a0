"""A collector over slow environments whose policy acts in one place."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import AsyncBatchedCollector, EnvBase, MultiSyncDataCollector
from steppe.errors import NotSupported, PolicyError, SpecError, WorkerError
from steppe_testing import ArrayCountingEnv, FailingEnv, assert_equal_data

BACKENDS = ["threading", "multiprocessing"]


def make() -> EnvBase:
    return ArrayCountingEnv(4, noise=True)


class Affine(nn.Module):
    """Choose the second action, and write the weight to the data."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        action = torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)
        return action, self.weight.expand(*observation.shape[:-1], 1)


def policy() -> TensorDictModule:
    return TensorDictModule(Affine(), ["observation"], ["action", "used"])


@pytest.mark.parametrize("inference", ["server", "worker"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_served_policy_gives_the_data_of_workers(backend: str, inference: str) -> None:
    arguments: dict[str, Any] = {"frames_per_batch": 12, "seed": 4}
    with MultiSyncDataCollector([make] * 3, policy(), **arguments) as collector:
        expected = [next(collector).clone() for _ in range(2)]
    how: dict[str, Any] = {"sync": True, "backend": backend, "inference": inference}
    with AsyncBatchedCollector([make] * 3, policy(), **how, **arguments) as collector:
        for batch in expected:
            assert_equal_data(next(collector), batch)


@pytest.mark.parametrize("backend", BACKENDS)
def test_new_weights_act_at_once_in_one_place(backend: str) -> None:
    acting = policy()
    arguments: dict[str, Any] = {"sync": True, "frames_per_batch": 8, "backend": backend}
    with AsyncBatchedCollector([make] * 2, acting, **arguments) as collector:
        before = next(collector).clone()
        with torch.no_grad():
            acting.module.weight.fill_(5.0)
        collector.update_policy_weights_()
        after = next(collector).clone()
        state = collector.state_dict()
        collector.update_policy_weights_({"module.weight": torch.tensor(9.0)})
        collector.load_state_dict(state)
        again = next(collector)
        counts = collector.stats()

    assert before["used"].eq(1).all()
    assert after["used"].eq(5).all()
    assert after["collector", "policy_version"].eq(1).all()
    assert again["used"].eq(5).all()
    assert counts["served_rows"] >= counts["served_calls"] >= 4


def test_a_function_of_observations_is_served() -> None:
    def second(observation: torch.Tensor) -> torch.Tensor:
        return torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)

    with AsyncBatchedCollector([make] * 2, second, frames_per_batch=8) as collector:
        batch = next(collector)

    assert batch.shape == (8,)
    assert batch["action"][:, 1].all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_error_of_a_served_policy_ends_the_collector(backend: str) -> None:
    def stuck(observation: torch.Tensor) -> torch.Tensor:
        if (observation == 3).any():
            raise ValueError("three")
        return torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)

    acting = TensorDictModule(stuck, ["observation"], ["action"])
    collector = AsyncBatchedCollector([make] * 2, acting, frames_per_batch=8, backend=backend)
    with collector, pytest.raises(WorkerError, match="which is served, raised ValueError: three"):
        next(collector)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_error_of_an_environment_names_its_worker(backend: str) -> None:
    makers = [make, lambda: FailingEnv(at=3)]
    collector = AsyncBatchedCollector(makers, policy(), frames_per_batch=16, sync=True, backend=backend)
    with collector, pytest.raises(WorkerError, match="failed in step 3") as caught:
        next(collector)
    assert caught.value.worker == 1


def test_a_killed_process_is_named_and_the_server_ends() -> None:
    before = threading.active_count()
    arguments: dict[str, Any] = {"frames_per_batch": 8, "sync": True, "backend": "multiprocessing"}
    with AsyncBatchedCollector([make] * 2, policy(), **arguments) as collector:
        next(collector)
        os.kill(collector.backend.pool.pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"Worker 1 .*ended unexpectedly"):
            collect_until_it_fails(collector)
    assert threading.active_count() == before


def collect_until_it_fails(collector: AsyncBatchedCollector) -> None:
    while True:
        next(collector)


def test_threads_keep_the_batches_that_they_gave() -> None:
    with AsyncBatchedCollector([make], policy(), frames_per_batch=8, seed=1) as collector:
        first = next(collector)
        kept = first.clone()
        for _ in range(3):
            next(collector)

    assert_equal_data(first, kept)


def test_wrong_arguments_are_refused_before_anything_starts() -> None:
    before = threading.active_count()
    with pytest.raises(SpecError, match="backend is one of threading, multiprocessing, found 'ray'"):
        AsyncBatchedCollector([make], policy(), frames_per_batch=4, backend="ray")
    with pytest.raises(SpecError, match="inference is 'worker' or 'server', found 'gpu'"):
        AsyncBatchedCollector([make], policy(), frames_per_batch=4, inference="gpu")
    with pytest.raises(PolicyError, match="serves a policy, and policy= is None"):
        AsyncBatchedCollector([make], frames_per_batch=4)
    with pytest.raises(NotSupported, match="takes compile_policy= with inference='worker' only"):
        AsyncBatchedCollector([make], policy(), frames_per_batch=4, compile_policy=True)
    with pytest.raises(TypeError, match="frames_per_batches"):
        AsyncBatchedCollector([make], policy(), frames_per_batches=4)
    assert threading.active_count() == before
