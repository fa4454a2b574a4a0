"""Collectors whose workers are nodes, here processes of this machine."""

from __future__ import annotations

import os
import signal
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn

import steppe
from steppe import EnvBase, MultiSyncDataCollector, SyncDataCollector
from steppe.errors import ArgumentError, BackendError, NotSupported, SpecError, WorkerError
from steppe_distributed import DistributedDataCollector, DistributedSyncDataCollector
from steppe_testing import ArrayCountingEnv, FailingEnv, assert_equal_data
from tests.distributed.in_time import in_time
from tests.limits import AT_ONCE

pytestmark = pytest.mark.filterwarnings("ignore:You are using a Backend")


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


def test_nodes_collect_the_data_of_worker_processes() -> None:
    with MultiSyncDataCollector([make] * 2, frames_per_batch=12, seed=4) as collector:
        expected = [next(collector).clone() for _ in range(2)]
    with DistributedSyncDataCollector([make] * 2, frames_per_batch=12, seed=4) as collector:
        found = [next(collector) for _ in range(2)]

    for one, other in zip(found, expected, strict=True):
        assert_equal_data(one, other)


def test_one_node_collects_the_data_of_one_process() -> None:
    with SyncDataCollector(make, frames_per_batch=6, seed=11) as collector:
        expected = next(collector).clone()
    with DistributedSyncDataCollector(make, frames_per_batch=6, seed=11) as collector:
        found = next(collector)

    assert_equal_data(found.squeeze(0), expected)


def test_large_batches_arrive_whole() -> None:
    """Batches over a megabyte are sent entry by entry."""
    with SyncDataCollector(make, frames_per_batch=60_000, seed=1) as collector:
        expected = next(collector).clone()
    with DistributedDataCollector(make, frames_per_batch=60_000, seed=1) as collector:
        assert_equal_data(next(collector), expected)


def test_updated_weights_make_the_next_batch() -> None:
    acting = policy()
    with DistributedSyncDataCollector([make] * 2, acting, frames_per_batch=8, update_interval=2) as collector:
        used = []
        for number in range(4):
            with torch.no_grad():
                acting.module.weight.fill_(float(number))
            used.append(next(collector)["used"].unique().tolist())

    assert used == [[1.0], [1.0], [2.0], [2.0]]


@pytest.mark.exhaustive
def test_weights_are_newest_in_lockstep_by_default() -> None:
    acting = policy()
    with DistributedSyncDataCollector(make, acting, frames_per_batch=4) as collector:
        for number in range(3):
            with torch.no_grad():
                acting.module.weight.fill_(float(number))
            assert next(collector)["used"].eq(number).all()


def test_ready_nodes_have_unique_trajectory_numbers() -> None:
    with DistributedDataCollector([make] * 2, frames_per_batch=8) as collector:
        ids = torch.cat([next(collector)["collector", "traj_ids"] for _ in range(6)])

    _, counts = ids.unique(return_counts=True)
    assert counts.max() <= 4, "an episode has four steps"


@pytest.mark.exhaustive
@pytest.mark.exhaustive
def test_nodes_continue_from_the_state_of_processes() -> None:
    acting = policy()
    with MultiSyncDataCollector([make] * 2, acting, frames_per_batch=8) as collector:
        with torch.no_grad():
            acting.module.weight.fill_(5.0)
        collector.update_policy_weights_()
        last = int(next(collector)["collector", "traj_ids"].max())
        state = collector.state_dict()
    with DistributedDataCollector([make] * 2, policy(), sync=True, frames_per_batch=8) as other:
        next(other)
        other.load_state_dict(state)
        batch = next(other)
        again = other.state_dict()

    assert batch["used"].eq(5).all()
    assert int(batch["collector", "traj_ids"].min()) > last - 2
    assert sorted(again) == sorted(state)


@pytest.mark.timeout(AT_ONCE * 6)
def test_ready_nodes_do_not_wait_for_others(tmp_path: Path) -> None:
    file = tmp_path / "go"
    held = partial(Held, str(file))
    with DistributedDataCollector([held, make], frames_per_batch=8) as collector:
        # The nodes number their trajectories 0, 2, 4, ... and 1, 3, 5, ...
        while next(collector)["collector", "traj_ids"][0] % 2 == 1:
            pass
        ids = torch.cat([next(collector)["collector", "traj_ids"] for _ in range(5)])
        file.touch()

    assert (ids % 2 == 1).all()


class Held(ArrayCountingEnv):
    """Waits for a file in its 12th step, which is in its second batch."""

    def __init__(self, file: str) -> None:
        super().__init__(4, noise=True)
        self.file, self.steps = Path(file), 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.steps += 1
        while self.steps == 12 and not self.file.exists():
            time.sleep(0.01)
        return super().step_into(action, out)


def test_requests_over_nodes_are_answered_row_by_row() -> None:
    pytest.importorskip("steppe_agents")
    with MultiSyncDataCollector([make] * 2, policy(), seed=3) as collector:
        collector.execute(n_episodes=5)
        expected = collector.get()
    with DistributedSyncDataCollector([make] * 2, policy(), seed=3) as collector:
        collector.execute(n_episodes=5)
        found = collector.get()

    assert found.length.tolist() == expected.length.tolist()
    assert_equal_data(found.steps, expected.steps)


def test_the_error_of_an_environment_arrives_with_its_traceback() -> None:
    with DistributedSyncDataCollector(lambda: FailingEnv(at=3), frames_per_batch=8) as collector:
        with pytest.raises(WorkerError, match="failed in step 3") as caught:
            next(collector)
        assert "FailingEnv" in caught.value.remote_traceback


def test_a_node_that_dies_is_named() -> None:
    with DistributedSyncDataCollector([make] * 2, frames_per_batch=8) as collector:
        next(collector)
        pid = int(collector.backend.pool.store.get("ready2"))
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=rf"Worker 1 .*node 2 \(process {pid}\) has closed"):
            collect_until_it_fails(collector)


def collect_until_it_fails(collector: Any) -> None:
    """Collect until the end of a node is noticed."""
    while True:
        next(collector)


def test_wrong_arguments_are_refused_before_anything_starts() -> None:
    with pytest.raises(SpecError, match=r"launcher is one of .*'submitit'.*found 'slurm'"):
        DistributedDataCollector(make, frames_per_batch=4, launcher="slurm")
    with pytest.raises(ArgumentError, match="num_collectors=3, and create_env_fn lists 2"):
        DistributedDataCollector([make] * 2, num_collectors=3, frames_per_batch=4)
    with pytest.raises(NotSupported, match="MultiSyncDataCollector or MultiaSyncDataCollector, found 'serial'"):
        DistributedDataCollector(make, collector_class="serial", frames_per_batch=4)


@pytest.mark.parametrize("backend", ["mpi", "nccl"])
def test_a_backend_that_torch_lacks_is_named(backend: str) -> None:
    if getattr(torch.distributed, f"is_{backend}_available")():
        pytest.skip(f"this torch has {backend}")
    with pytest.raises(BackendError, match=rf"built without {backend}: take backend='gloo'"):
        DistributedDataCollector(make, frames_per_batch=4, backend=backend)


def test_a_backend_without_its_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch with nccl on a machine without GPUs, which is no such torch here: the check alone says so."""
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BackendError, match=r"nccl' sends messages through GPUs, and this machine shows torch none"):
        DistributedDataCollector(make, frames_per_batch=4, backend="nccl")


def test_more_nodes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, which is no such machine here: the check alone says so."""
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(BackendError, match=r"this machine has 2 for the collector and 2 nodes: take backend='gloo'"):
        DistributedDataCollector([make] * 2, frames_per_batch=4, backend="nccl")


def test_an_unknown_backend_is_named() -> None:
    with pytest.raises(BackendError, match="backend is 'gloo', 'nccl' or 'mpi', found 'ucc'"):
        DistributedDataCollector(make, frames_per_batch=4, backend="ucc")


def test_a_policy_that_cannot_be_pickled_is_named() -> None:
    generator = (number for number in range(3))

    def stuck(observation: torch.Tensor) -> torch.Tensor:
        return observation + len(generator.__name__)

    acting = TensorDictModule(stuck, ["observation"], ["action"])
    with in_time(), pytest.raises(WorkerError, match=r"cannot be sent to a worker process.*generator"):
        DistributedDataCollector(make, acting, frames_per_batch=4)
    commands = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    assert not [command for command in commands if "steppe_distributed" in command]


@pytest.mark.exhaustive
@pytest.mark.parametrize("silent", [True, False])
def test_warnings_of_nodes_are_filtered_on_request(silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steppe, "filter_warnings_subprocess", silent)
    with DistributedDataCollector(WarningEnv, frames_per_batch=4) as collector:
        noise = next(collector)["next", "noise"]

    assert noise.eq(0.0 if silent else 1.0).all()


class WarningEnv(ArrayCountingEnv):
    """Counts the warnings of a step that are not filtered."""

    def __init__(self) -> None:
        super().__init__(4, noise=True)

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        ends = super().step_into(action, out)
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn("a step", UserWarning, stacklevel=1)
        out["noise"][...] = len(caught)
        return ends


def test_a_policy_is_served_to_nodes() -> None:
    with MultiSyncDataCollector([make] * 2, policy(), frames_per_batch=12, seed=4) as collector:
        expected = next(collector).clone()
    arguments: dict[str, Any] = {"frames_per_batch": 12, "seed": 4, "inference": "server", "update_interval": 2}
    with DistributedSyncDataCollector([make] * 2, policy(), **arguments) as collector:
        assert_equal_data(next(collector), expected)
        assert collector.stats()["served_rows"] >= 12


def test_processes_of_a_node_deliver_their_batches_alone() -> None:
    inside: dict[str, Any] = {"collector_class": "multi_async", "num_workers_per_collector": 2}
    with DistributedDataCollector(make, policy(), frames_per_batch=8, **inside) as collector:
        ids = torch.cat([next(collector)["collector", "traj_ids"] for _ in range(4)])

    _, counts = ids.unique(return_counts=True)
    assert counts.max() <= 4
