"""A collector with workers: ``Collector(..., num_workers=n)``."""

from __future__ import annotations

import signal
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import (
    Collector,
    EnvBase,
    MultiSyncDataCollector,
    SerialEnv,
    SyncDataCollector,
)
from steppe.collectors import CategoricalActor
from steppe.errors import ArgumentError, WorkerTimeout
from steppe_testing import CountingEnv, assert_equal_data

CART = "gym:CartPole-v1"


def pair() -> EnvBase:
    return SerialEnv(2, CART)


def short() -> EnvBase:
    return SerialEnv(2, [lambda: CountingEnv(2), lambda: CountingEnv(3)])


def actor() -> TensorDictModule:
    torch.manual_seed(0)
    return CategoricalActor(nn.Linear(4, 2))


def test_workers_are_a_number_of_the_same_collector() -> None:
    with Collector(pair, num_workers=2, frames_per_batch=16, total_frames=32, seed=1) as collector:
        assert type(collector) is Collector
        assert collector.n_lanes == 4
        batches = list(collector)
        assert [batch.batch_size for batch in batches] == [(4, 4)] * 2
        collector.execute(n_episodes=5)
        assert collector.get().row.tolist() == [0, 1, 2, 3, 4]
    with MultiSyncDataCollector([pair] * 2, frames_per_batch=16, seed=1, cat_results=0) as several:
        for batch in batches:
            assert_equal_data(batch, next(several))


def test_single_environments_of_workers_are_rows() -> None:
    with Collector(CART, num_workers=2, frames_per_batch=16) as collector:
        assert next(collector).batch_size == (2, 8)


def test_iterating_over_workers_needs_frames_per_batch() -> None:
    with Collector(CART, num_workers=1) as collector, pytest.raises(TypeError, match="needs frames_per_batch="):
        next(collector)


def test_worker_arguments_need_num_workers() -> None:
    with pytest.raises(TypeError, match=r"start_timeout= is for workers: say num_workers="):
        Collector(CART, start_timeout=1.0)
    with pytest.raises(TypeError, match=r"\[lanes, T\]"):
        Collector(CART, num_workers=1, cat_results=0)


# -- seeds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [None, actor])
@pytest.mark.parametrize("env", [CART, pair])
def test_one_seed_gives_one_data_set_in_batches_and_requests(env: Any, make: Any) -> None:
    def policy() -> Any:
        return make and make()

    data: list[Any] = []
    for kind, more in ((SyncDataCollector, {}), (MultiSyncDataCollector, {"num_workers": 1, "cat_results": 0})):
        with kind(env, policy(), frames_per_batch=60, seed=7, **more) as collector:
            data.append([next(collector).exclude("collector") for _ in range(2)])
    for workers in (0, 1):
        with Collector(env, policy(), num_workers=workers, auto_reset=True, seed=7) as collector:
            steps = data[0][0].batch_size[-1]
            shape = data[0][0].batch_size
            found = [collector.execute(n_steps=steps).result().steps.exclude("is_init", "collector") for _ in range(2)]
            data.append([each.reshape(shape) for each in found])
    for other in data[1:]:
        for first, second in zip(data[0], other, strict=True):
            assert_equal_data(first, second)


def test_a_seed_determines_the_samples_of_the_policy() -> None:
    def actions(seed: int) -> torch.Tensor:
        with SyncDataCollector(CART, actor(), frames_per_batch=50, seed=seed) as collector:
            return next(collector)["action_log_prob"]

    first = actions(3)
    torch.manual_seed(99)
    assert torch.equal(actions(3), first)


class Seeded(nn.Module):
    """A policy that draws from a separate generator."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def seed(self, number: int) -> None:
        self.number = number

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nn.functional.one_hot(torch.randint(2, observation.shape[:-1]), 2), torch.full(
            observation.shape[:-1], self.number
        )


class SeededPolicy(TensorDictModule):
    def __init__(self) -> None:
        super().__init__(Seeded(), ["observation"], ["action", "number"])

    def seed(self, number: int) -> None:
        self.module.seed(number)


def test_policy_seeds_determine_only_the_policy() -> None:
    with Collector(CART, SeededPolicy(), num_workers=2, frames_per_batch=8, policy_seeds=[4, 9]) as collector:
        assert next(collector)["number"].tolist() == [[4] * 4, [9] * 4]
    with Collector(CART, SeededPolicy(), frames_per_batch=8, policy_seeds=5, seed=1) as collector:
        first = next(collector)
    with Collector(CART, SeededPolicy(), frames_per_batch=8, policy_seeds=5, seed=2) as collector:
        other = next(collector)
    assert first["number"].eq(5).all()
    assert torch.equal(first["action"], other["action"])
    assert not torch.equal(first["observation"], other["observation"])
    with pytest.raises(ArgumentError, match="policy_seeds lists 3 numbers for 2 workers"):
        Collector(CART, SeededPolicy(), num_workers=2, policy_seeds=[1, 2, 3])


def test_each_worker_may_have_a_seed() -> None:
    def observed(seeds: Any, workers: int = 2) -> torch.Tensor:
        with Collector(pair, num_workers=workers, frames_per_batch=8, seeds=seeds) as collector:
            return next(collector)["observation"][:, 0]

    first = observed([1, 2])
    assert len(first.unique(dim=0)) == 4
    assert torch.equal(observed([1, 2]), first)
    assert torch.equal(observed([1, 5])[:2], first[:2])
    assert not torch.equal(observed([1, 5])[2:], first[2:])
    assert torch.equal(observed([1], 0), observed(1, 0))
    with pytest.raises(ArgumentError, match="seeds lists 1 numbers for 2 workers"):
        observed([1])
    with pytest.raises(TypeError, match="seed= or seeds="):
        Collector(pair, seed=1, seeds=[1])


# -- what workers do like this process --------------------------------------------------------------------------------


def test_workers_deliver_whole_trajectories() -> None:
    with Collector(short, num_workers=2, frames_per_batch=8, total_frames=48, trajs_per_batch=3) as collector:
        batches = list(collector)
    assert len(batches) >= 4
    for batch in batches:
        mask = batch["collector", "mask"]
        assert len(batch) == 3
        for row, length in enumerate(mask.sum(-1).tolist()):
            assert length in (2, 3)
            assert batch["next", "done"][row, :length, 0].tolist() == [False] * (length - 1) + [True]
            assert batch["collector", "traj_ids"][row, :length].unique().numel() == 1


def endless() -> EnvBase:
    signal.pause()
    raise AssertionError


def test_a_worker_that_does_not_start_exceeds_start_timeout() -> None:
    with pytest.raises(WorkerTimeout, match=r"Worker 0 has not made its environment.* start_timeout=0.2 s"):
        Collector(endless, num_workers=1, start_timeout=0.2)


@pytest.mark.parametrize("number", [-1, 1.5, "2"])
def test_an_invalid_num_workers_is_named(number: Any) -> None:
    with pytest.raises(ArgumentError, match="num_workers is a whole number >= 1, found"):
        Collector("gym:CartPole-v1", frames_per_batch=10, total_frames=10, num_workers=number)
