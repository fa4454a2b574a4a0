"""A collector whose workers are actors of a Ray cluster on this machine."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

pytest.importorskip("ray")

from steppe import EnvBase, MultiSyncDataCollector, SerialEnv, SyncDataCollector
from steppe.errors import ArgumentError, NotSupported, WorkerError
from steppe_ray import RayCollector
from steppe_testing import ArrayCountingEnv, FailingEnv, assert_equal_data
from tests.distributed.in_time import in_time

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("cluster")]

#: Actors that take little, so that the cluster has room for those of a test.
SMALL: dict[str, Any] = {"remote_configs": {"num_cpus": 0.5}}


def make() -> EnvBase:
    return ArrayCountingEnv(4, noise=True)


def collected(batches: int = 3, env: Any = make, policy: Any = None, **arguments: Any) -> list[TensorDictBase]:
    with RayCollector(env, policy, **SMALL, **arguments) as collector:
        return [next(collector) for _ in range(batches)]


def collect_until_it_fails(collector: RayCollector) -> None:
    """Collect until the cluster has noticed the end of an actor."""
    while True:
        next(collector)


class Affine(nn.Module):
    """Choose an action by its weights, and write the weight to the data."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        action = torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)
        return action, self.weight.expand(*observation.shape[:-1], 1)


def policy() -> TensorDictModule:
    return TensorDictModule(Affine(), ["observation"], ["action", "used"])


def test_one_actor_collects_the_data_of_one_process() -> None:
    with SyncDataCollector(make, frames_per_batch=6, seed=11) as collector:
        expected = [next(collector).clone() for _ in range(3)]

    for found, batch in zip(collected(frames_per_batch=6, seed=11, sync=True), expected, strict=True):
        assert_equal_data(found.squeeze(0), batch)


def test_actors_collect_the_data_of_worker_processes() -> None:
    with MultiSyncDataCollector([make] * 3, frames_per_batch=18, seed=4) as collector:
        expected = [next(collector).clone() for _ in range(2)]

    found = collected(2, num_collectors=3, frames_per_batch=18, seed=4, sync=True)
    for one, other in zip(found, expected, strict=True):
        assert_equal_data(one, other)


def test_an_actor_has_several_environments_on_request() -> None:
    with SyncDataCollector(SerialEnv(2, make), frames_per_batch=8, seed=2) as collector:
        expected = next(collector).clone()

    (found,) = collected(1, frames_per_batch=8, seed=2, sync=True, num_workers_per_collector=2)
    assert_equal_data(found.squeeze(0), expected)


def test_batches_of_ready_actors_have_unique_trajectory_numbers() -> None:
    batches = collected(6, num_collectors=2, frames_per_batch=8)
    ids = torch.cat([batch["collector", "traj_ids"] for batch in batches])

    assert {batch.shape for batch in batches} == {torch.Size([8])}
    _, counts = ids.unique(return_counts=True)
    assert counts.max() <= 4, "an episode has four steps"


def test_weights_reach_every_actor_and_are_stored_once() -> None:
    acting = policy()
    with RayCollector(make, acting, num_collectors=2, sync=True, frames_per_batch=8, **SMALL) as collector:
        before = next(collector).clone()
        with torch.no_grad():
            acting.module.weight.fill_(5.0)
        collector.update_policy_weights_()
        (stored,) = collector.backend.weights.published.values
        after = next(collector)
        assert collector.backend.weights.published.values == [stored]

    assert before["used"].eq(1).all()
    assert after["used"].eq(5).all()
    assert after["collector", "policy_version"].eq(1).all()


def test_weights_are_updated_at_least_every_few_batches() -> None:
    acting = policy()
    arguments: dict[str, Any] = {"sync": True, "frames_per_batch": 4, "max_weight_update_interval": 2, **SMALL}
    with RayCollector(make, acting, **arguments) as collector:
        used = []
        for number in range(6):
            with torch.no_grad():
                acting.module.weight.fill_(float(number))
            used.append(next(collector)["used"].unique().tolist())

    assert used == [[1.0], [1.0], [2.0], [2.0], [4.0], [4.0]]


def test_the_error_of_an_environment_arrives_with_its_traceback() -> None:
    with RayCollector(lambda: FailingEnv(at=3), frames_per_batch=8, sync=True, **SMALL) as collector:
        with pytest.raises(WorkerError, match="failed in step 3") as caught:
            next(collector)
        assert "FailingEnv" in caught.value.remote_traceback
        assert caught.value.worker == 0


def test_an_actor_that_dies_is_named() -> None:
    with RayCollector(make, num_collectors=2, frames_per_batch=8, sync=True, **SMALL) as collector:
        next(collector)
        node, pid = collector.backend.pool.places[1]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=rf"Worker 1 .*node {node}, process {pid}"):
            collect_until_it_fails(collector)


def test_an_actor_that_dies_is_replaced_on_request() -> None:
    arguments: dict[str, Any] = {"num_collectors": 2, "frames_per_batch": 16, "sync": True, "seed": 0, "restart": True}
    acting = policy()
    with RayCollector(make, acting, **arguments, **SMALL) as collector:
        batches = [next(collector).clone() for _ in range(2)]
        with torch.no_grad():
            acting.module.weight.fill_(3.0)
        collector.update_policy_weights_()
        os.kill(collector.backend.pool.places[1][1], signal.SIGKILL)
        with pytest.warns(UserWarning, match=r"Worker 1 ended unexpectedly.*It is replaced"):
            batches.append(next(collector).clone())
        batches.append(next(collector).clone())

        assert collector.stats()["lost_frames"] == 8
        assert collector.stats()["frames"] == 16 * len(batches)
    assert batches[-1]["used"].eq(3).all()
    frames = torch.stack(batches)
    _, counts = frames["collector", "traj_ids"].unique(return_counts=True)
    assert counts.max() <= 4, "the replacement gives its trajectories new numbers"
    first, last = frames[0, 1]["noise"], frames[-1, 1]["noise"]
    assert not torch.equal(first, last), "the replacement does not repeat the frames of its predecessor"


def test_workers_extend_a_buffer_without_the_caller() -> None:
    from steppe_ray import RayReplayBuffer

    buffer = RayReplayBuffer(Frames, remote_config={"num_cpus": 0.5})
    with RayCollector(make, num_collectors=2, frames_per_batch=8, replay_buffer=buffer, seed=1, **SMALL) as collector:
        for _ in range(5):
            assert next(collector) is None
    sample = buffer.sample(6)

    assert collector.stats()["frames"] == buffer.write_count == len(buffer) >= 40
    assert sample.shape == (6,)
    assert buffer.call("calls") == {"extend": buffer.write_count // 8}
    buffer.close()


class Frames:
    """A replay buffer that keeps whatever it is given, and counts the calls of ``extend``."""

    def __init__(self) -> None:
        self.batches: list[TensorDictBase] = []

    @property
    def write_count(self) -> int:
        return sum(batch.numel() for batch in self.batches)

    def __len__(self) -> int:
        return self.write_count

    def extend(self, batch: TensorDictBase) -> None:
        self.batches.append(batch.reshape(-1))

    def sample(self, size: int) -> TensorDictBase:
        frames: TensorDictBase = torch.cat(self.batches)  # type: ignore[arg-type]
        return frames[torch.randint(len(frames), (size,))]

    def calls(self) -> dict[str, int]:
        return {"extend": len(self.batches)}


def test_a_batch_that_is_received_belongs_to_the_caller() -> None:
    with RayCollector(SerialEnv(4, make), frames_per_batch=40_000, sync=True, **SMALL) as collector:
        first = next(collector)
        kept = first["observation"].clone()
        first["observation"] += 1.0
        next(collector)

        assert torch.equal(first["observation"], kept + 1.0)


def test_wrong_numbers_are_refused_before_anything_starts() -> None:
    with pytest.raises(ArgumentError, match="num_collectors=3, and create_env_fn lists 2"):
        RayCollector([make] * 2, num_collectors=3, frames_per_batch=4)
    with pytest.raises(ArgumentError, match="remote_configs lists 1 options for 2 actors"):
        RayCollector([make] * 2, remote_configs=[{}], frames_per_batch=4)
    with pytest.raises(NotSupported, match="MultiSyncDataCollector or MultiaSyncDataCollector, found"):
        RayCollector(make, collector_class=TensorDict, frames_per_batch=4)


def test_a_policy_that_cannot_be_pickled_is_named() -> None:
    def stuck(observation: torch.Tensor) -> torch.Tensor:
        return observation + len(generator.__name__)

    generator = (number for number in range(3))
    acting = TensorDictModule(stuck, ["observation"], ["action"])
    with in_time(), pytest.raises(WorkerError, match=r"cannot be sent to a worker process.*generator"):
        RayCollector(make, acting, frames_per_batch=4, **SMALL)


def test_requests_over_actors_are_answered_row_by_row() -> None:
    pytest.importorskip("steppe_agents")
    with MultiSyncDataCollector([make] * 2, policy(), seed=3) as collector:
        collector.execute(n_episodes=5)
        expected = collector.get()
    with RayCollector(make, policy(), num_collectors=2, sync=True, seed=3, **SMALL) as collector:
        collector.execute(n_episodes=5)
        found = collector.get()

    assert found.length.tolist() == expected.length.tolist()
    assert_equal_data(found.steps, expected.steps)
