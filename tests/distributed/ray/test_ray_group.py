"""What actors have inside: large batches and weights, a policy elsewhere, and processes of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule

pytest.importorskip("ray")

import ray

from steppe import EnvBase, MultiaSyncDataCollector, MultiSyncDataCollector, SerialEnv
from steppe.errors import WorkerError
from steppe_ray import RayCollector
from steppe_ray.ray_group import RayGroup
from steppe_testing import ArrayCountingEnv, FailingEnv, assert_equal_data
from tests.distributed.in_time import in_time
from tests.distributed.ray.test_ray_collector import SMALL, Affine, collect_until_it_fails, collected, make, policy

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("cluster")]


def test_ten_megabytes_for_eight_actors_are_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[int] = []
    publish = RayGroup.publish

    def counted(self: RayGroup, values: dict[str, torch.Tensor]) -> Any:
        stored.append(sum(value.nbytes for value in values.values()))
        return publish(self, values)

    monkeypatch.setattr(RayGroup, "publish", counted)
    acting = TensorDictModule(Affine(), ["observation"], ["action", "used"])
    acting.module.register_buffer("ballast", torch.zeros(10, 2**18))
    with RayCollector(make, acting, num_collectors=8, sync=True, frames_per_batch=32, **SMALL) as collector:
        next(collector)
        stored.clear()
        with torch.no_grad():
            acting.module.weight.fill_(5.0)
        collector.update_policy_weights_()
        used = next(collector)["used"]

    assert len(stored) == 1
    assert stored[0] > 10 * 2**20
    assert used.shape[0] == 8
    assert used.eq(5).all()


def wide() -> EnvBase:
    """Frames of 24 kB, so that some hundreds are a large batch."""
    return ArrayCountingEnv(4, noise=True, pixels=(64, 64))


@pytest.mark.parametrize("shared", [True, False])
def test_large_batches_of_actors_belong_to_the_caller(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of some megabytes is used again once the caller has dropped its batch, here and for messages."""
    monkeypatch.setattr(RayGroup, "shares_batches", shared)
    arguments: dict[str, Any] = {"frames_per_batch": 800, "seed": 4}
    with MultiSyncDataCollector([SerialEnv(4, wide)] * 2, **arguments) as collector:
        expected = [next(collector).clone() for _ in range(4)]
    found = collected(4, [SerialEnv(4, wide)] * 2, sync=True, **arguments)

    for one, other in zip(found, expected, strict=True):
        assert_equal_data(one, other)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_batches_are_equal_in_memory_and_in_messages(shared: bool, sync: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors on other machines send their batches, and those on this one write to the memory of the caller."""
    local = MultiSyncDataCollector if sync else MultiaSyncDataCollector
    arguments: dict[str, Any] = {"frames_per_batch": 14, "seed": 4}
    with local([make], policy(), **arguments) as collector:
        expected = [next(collector).clone() for _ in range(3)]
    memories: list[Any] = []
    batch_memory = RayGroup.batch_memory

    def noted(self: RayGroup, *args: Any, **kwargs: Any) -> Any:
        memories.append(batch_memory(self, *args, **kwargs))
        return memories[-1]

    monkeypatch.setattr(RayGroup, "batch_memory", noted)
    monkeypatch.setattr(RayGroup, "shares_batches", shared)
    with RayCollector([make], policy(), sync=sync, **arguments, **SMALL) as collector:
        found = [next(collector) for _ in range(3)]

    assert [memory is not None for memory in memories] == [shared]
    for one, other in zip(found, expected, strict=True):
        assert_equal_data(one, other)


def test_messages_to_actors_here_pass_by_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first batch, Ray carries weights alone."""
    called: list[str] = []
    submit = RayGroup.submit

    def noted(self: RayGroup, worker: int, method: str, *args: object) -> Any:
        called.append(method)
        return submit(self, worker, method, *args)

    acting = policy()
    with RayCollector([make] * 2, acting, sync=True, frames_per_batch=8, **SMALL) as collector:
        next(collector)
        monkeypatch.setattr(RayGroup, "submit", noted)
        for number in range(3):
            with torch.no_grad():
                acting.module.weight.fill_(float(number))
            collector.update_policy_weights_()
            assert next(collector)["used"].eq(number).all()
        next(collector)

    assert called[:6] == ["renew"] * 6
    assert set(called[6:]) == {"shutdown"}


def test_weights_that_cannot_be_read_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    publish, versions = RayGroup.publish, []

    def broken(self: RayGroup, values: dict[str, torch.Tensor]) -> Any:
        versions.append(values)
        return publish(self, values) if len(versions) == 1 else [ray.put("no weights")]

    monkeypatch.setattr(RayGroup, "publish", broken)
    with RayCollector([make] * 2, policy(), sync=True, frames_per_batch=8, **SMALL) as collector:
        next(collector)
        collector.update_policy_weights_()
        with in_time(), pytest.raises(WorkerError, match=r"Worker \d raised in new weights"):
            next(collector)


def test_slow_actors_end_their_batch_on_request() -> None:
    """The batches of others are cut off when enough actors have theirs."""
    arguments: dict[str, Any] = {"frames_per_batch": 2_000, "sync": True, "preemptive_threshold": 0.5, **SMALL}
    with RayCollector([make, Slow], **arguments) as collector:
        masks = [next(collector)["collector", "mask"].clone() for _ in range(3)]

    for mask in masks:
        assert mask[0].all()
        assert mask[1].any()
        assert not mask[1].all()


class Slow(ArrayCountingEnv):
    """Waits 20 ms in each step."""

    def __init__(self) -> None:
        super().__init__(4, noise=True)

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        time.sleep(0.02)
        return super().step_into(action, out)


def test_an_actor_with_processes_that_dies_is_named() -> None:
    inside: dict[str, Any] = {"collector_class": MultiSyncDataCollector, "num_workers_per_collector": 2}
    with RayCollector(make, frames_per_batch=8, sync=True, **inside, **SMALL) as collector:
        next(collector)
        os.kill(collector.backend.pool.places[0][1], signal.SIGKILL)
        with in_time(), pytest.raises(WorkerError, match="Worker 0 ended unexpectedly: its actor"):
            collect_until_it_fails(collector)


def test_a_policy_is_served_to_actors() -> None:
    acting = policy()
    with MultiSyncDataCollector([make] * 2, acting, frames_per_batch=12, seed=4) as collector:
        expected = next(collector).clone()
    arguments: dict[str, Any] = {"frames_per_batch": 12, "seed": 4, "sync": True, "inference": "server", **SMALL}
    with RayCollector([make] * 2, acting, **arguments) as collector:
        assert_equal_data(next(collector), expected)
        with torch.no_grad():
            acting.module.weight.fill_(5.0)
        collector.update_policy_weights_()
        after = next(collector)
        counts = collector.stats()

    assert after["used"].eq(5).all()
    assert after["collector", "policy_version"].eq(1).all()
    assert counts["served_rows"] >= 24


def test_an_actor_that_is_replaced_finds_the_server() -> None:
    arguments: dict[str, Any] = {"frames_per_batch": 8, "sync": True, "inference": "server", "restart": True, **SMALL}
    with RayCollector([make] * 2, policy(), **arguments) as collector:
        next(collector)
        os.kill(collector.backend.pool.places[1][1], signal.SIGKILL)
        with pytest.warns(UserWarning, match="It is replaced"):
            assert next(collector)["used"].eq(1).all()


def test_a_replacement_may_start_slowly_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The short time limit is for resources that others hold; a busy machine takes longer to start a process."""
    monkeypatch.setattr("steppe_ray.ray_group._PLACE", 0.0)
    with RayCollector([make] * 2, policy(), frames_per_batch=8, sync=True, restart=True, **SMALL) as collector:
        next(collector)
        os.kill(collector.backend.pool.places[1][1], signal.SIGKILL)
        with pytest.warns(UserWarning, match="It is replaced"):
            assert next(collector).shape[0] == 2


def test_a_replacement_that_hangs_is_named(tmp_path: Path) -> None:
    made, go = tmp_path / "made", tmp_path / "go"

    def hang_the_second_time() -> EnvBase:
        while made.exists() and not go.exists():
            time.sleep(0.05)
        made.touch()
        return make()

    arguments: dict[str, Any] = {"frames_per_batch": 8, "sync": True, "restart": True, "batch_timeout": 3.0, **SMALL}
    with RayCollector([make, hang_the_second_time], policy(), **arguments) as collector:
        next(collector)
        os.kill(collector.backend.pool.places[1][1], signal.SIGKILL)
        late = pytest.raises(WorkerError, match=r"Worker 1 ended.*did not answer within batch_timeout=3 s")
        with pytest.warns(UserWarning, match="It is replaced"), in_time(), late:
            next(collector)
        go.touch()


def test_processes_of_an_actor_deliver_their_batches_alone() -> None:
    acting = policy()
    inside: dict[str, Any] = {"collector_class": MultiaSyncDataCollector, "num_workers_per_collector": 2}
    with RayCollector(make, acting, num_collectors=2, frames_per_batch=8, **inside, **SMALL) as collector:
        batches = [next(collector).clone() for _ in range(6)]
        with torch.no_grad():
            acting.module.weight.fill_(5.0)
        collector.update_policy_weights_()
        while batches[-1]["used"].ne(5).any():
            batches.append(next(collector).clone())
        state = collector.state_dict()
        collector.load_state_dict(state)
        next(collector)

    assert len(batches) < 20
    assert {batch.shape for batch in batches} == {torch.Size([8])}
    for batch in batches:
        updated = batch["collector", "policy_version"] == 1
        assert torch.equal(batch["used"].squeeze(-1) == 5, updated)
    _, counts = torch.cat([batch["collector", "traj_ids"] for batch in batches]).unique(return_counts=True)
    assert counts.max() <= 4, "an episode has four steps"
    assert len(counts) >= 4, "all processes have delivered"


def test_the_error_in_a_process_of_an_actor_arrives() -> None:
    inside: dict[str, Any] = {"collector_class": "multi_async", "num_workers_per_collector": 2}
    collector = RayCollector(lambda: FailingEnv(at=3), frames_per_batch=8, **inside, **SMALL)
    with collector, pytest.raises(WorkerError, match="failed in step 3"):
        next(collector)
