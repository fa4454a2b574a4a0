"""Buffers that collectors fill: D4's programs, workers that write themselves, writers that are stopped or killed."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe import MultiaSyncDataCollector, MultiSyncDataCollector, SerialEnv, SyncDataCollector
from steppe.systems import open_descriptors
from steppe.transforms import MultiStepTransform
from steppe.workers import Pool, Worker
from steppe_replay import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    SliceSampler,
    TensorDictPrioritizedReplayBuffer,
    TensorDictReplayBuffer,
    iter_trajectories,
)
from steppe_testing import ArrayCountingEnv, CountingEnv
from tests.limits import CHILD

make_env = partial(ArrayCountingEnv, 7)


def check_slices(sample: Any, length: int) -> None:
    """Steps of ArrayCountingEnv count up within a trajectory."""
    slices = sample.reshape(-1, length)
    assert (slices["collector", "traj_ids"] == slices["collector", "traj_ids"][:, :1]).all()
    count = slices["observation"].reshape(len(slices), length, -1)[..., 0]
    assert torch.equal(count, count[:, :1] + torch.arange(length))


# -- the four programs of D4 ------------------------------------------------------------------------------------------


def test_transitions_of_a_flat_batch_are_sampled() -> None:
    memory = ReplayBuffer(storage=LazyTensorStorage(100), transform=lambda data: data.reshape(-1))
    with SyncDataCollector(make_env(), None, frames_per_batch=20, total_frames=60) as collector:
        for data in collector:
            memory.extend(data)
    assert len(memory) == 60
    assert memory.sample(32).batch_size == (32,)


def test_slices_of_a_single_environment_are_sampled() -> None:
    memory = ReplayBuffer(
        storage=LazyTensorStorage(100),
        sampler=SliceSampler(num_slices=4, trajectory_key=("collector", "traj_ids")),
    )
    with SyncDataCollector(make_env(), None, frames_per_batch=10, total_frames=60) as collector:
        for data in collector:
            memory.extend(data)
    check_slices(memory.sample(12), 3)


@pytest.mark.parametrize("kind", ["ParallelEnv", "MultiSync", "MultiSync of ParallelEnv"])
def test_slices_of_batched_environments_are_sampled(kind: str) -> None:
    ndim = 3 if kind == "MultiSync of ParallelEnv" else 2
    memory = ReplayBuffer(
        storage=LazyTensorStorage(200, ndim=ndim),
        sampler=SliceSampler(num_slices=4, trajectory_key=("collector", "traj_ids")),
    )
    arguments: dict[str, Any] = {"frames_per_batch": 40, "total_frames": 240}
    collector: Any
    if kind == "ParallelEnv":
        collector = SyncDataCollector(SerialEnv(4, make_env), None, **arguments)
    elif kind == "MultiSync":
        collector = MultiSyncDataCollector([make_env] * 4, None, cat_results="stack", **arguments)
    else:
        collector = MultiSyncDataCollector(
            [partial(SerialEnv, 2, make_env)] * 2, None, cat_results="stack", **arguments
        )
    with collector:
        for data in collector:
            memory.extend(data)
    assert len(memory) == 200
    for _ in range(5):
        check_slices(memory.sample(12), 3)


# -- workers that write themselves ------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
@pytest.mark.parametrize("kind", [MultiaSyncDataCollector, MultiSyncDataCollector])
def test_each_frame_is_in_the_buffer_once(kind: Any, storage: Any) -> None:
    """Workers write their batches, and the caller never sees them."""
    seen: list[Any] = []
    buffer = TensorDictReplayBuffer(storage=storage(1000), batch_size=32)
    extend = buffer.extend
    buffer.extend = lambda data: seen.append(data) or extend(data)  # type: ignore[method-assign]
    with kind([make_env] * 2, None, frames_per_batch=20, total_frames=200, replay_buffer=buffer) as collector:
        for nothing in collector:
            assert nothing is None
            check = buffer.sample()
            assert check.batch_size == (32,)
    assert seen == []
    data = buffer[:]
    assert len(data) == buffer.write_count == collector.stats()["frames"] >= 200
    places = torch.stack([data["collector", "traj_ids"], data["observation"].reshape(len(data), -1)[:, 0].long()], -1)
    assert len(places.unique(dim=0)) == len(data)


def test_slices_stay_whole_over_several_workers() -> None:
    """A slice never joins the data of two workers, whose batches stand side by side."""
    sampler = SliceSampler(slice_len=3, end_key=("next", "done"))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(90), sampler=sampler, batch_size=60)
    with MultiaSyncDataCollector([make_env] * 2, None, frames_per_batch=10, replay_buffer=buffer) as collector:
        collector.start()
        deadline = time.monotonic() + CHILD
        while buffer.write_count < 1000 and time.monotonic() < deadline:
            if len(buffer) > 20:
                check_slices(buffer.sample(), 3)
        collector.async_shutdown()
    assert buffer.write_count >= 1000


@pytest.mark.parametrize("keys", [{"end_key": ("next", "done")}, {"traj_key": ("collector", "traj_ids")}], ids=str)
def test_slices_go_on_over_the_batches_of_a_worker(keys: Any) -> None:
    """Slices are longer than the batches, between which the other worker has written."""
    sampler = SliceSampler(slice_len=23, **keys)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(600), sampler=sampler, batch_size=23 * 20)
    makers = [partial(ArrayCountingEnv, 29), partial(ArrayCountingEnv, 41)]
    arguments: dict[str, Any] = {"frames_per_batch": 8, "total_frames": 1200, "replay_buffer": buffer}
    with MultiaSyncDataCollector(makers, None, **arguments) as collector:
        for _ in collector:
            if sampler_has_slices(sampler, buffer):
                check_slices(buffer.sample(), 23)
    ids = buffer.sample(23 * 400)["collector", "traj_ids"].unique()
    whole = sorted(map(len, iter_trajectories(buffer)))
    assert whole.count(29) >= 3
    assert whole.count(41) >= 2
    assert len(ids) == sum(length >= 23 for length in whole)


def sampler_has_slices(sampler: SliceSampler, buffer: Any) -> bool:
    """Whether a trajectory is long enough for a slice."""
    if not len(buffer):
        return False
    table = sampler.table(buffer.storage)
    return bool((table.stops - table.starts >= 23).any())


def test_whole_trajectories_of_workers_stay_whole() -> None:
    sampler = SliceSampler(slice_len=7, end_key=("next", "done"))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(500), sampler=sampler, batch_size=70)
    arguments: dict[str, Any] = {"frames_per_batch": 10, "total_frames": 400, "trajs_per_batch": 1}
    with MultiaSyncDataCollector([make_env] * 2, None, replay_buffer=buffer, **arguments) as collector:
        for _ in collector:
            pass
    sample = buffer.sample()
    check_slices(sample, 7)
    assert sample["next", "done"].reshape(10, 7)[:, -1].all()


def test_random_frames_come_before_those_of_the_policy() -> None:
    """The layout knows what the policy writes before it acts."""

    def act(observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        action = torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)
        return action, torch.ones(observation.shape[:-1])

    policy = TensorDictModule(act, ["observation"], ["action", "value"])
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(400), batch_size=10)
    arguments: dict[str, Any] = {"frames_per_batch": 20, "total_frames": 200, "init_random_frames": 60}
    with MultiaSyncDataCollector([make_env] * 2, policy, replay_buffer=buffer, **arguments) as collector:
        for _ in collector:
            pass
    value = buffer[:]["value"]
    assert buffer.write_count == len(value) == collector.stats()["frames"] >= 200
    assert 60 <= int((value == 0).sum()) <= 120


@pytest.mark.parametrize("kind", [MultiaSyncDataCollector, MultiSyncDataCollector])
def test_workers_write_the_steps_that_wait_at_their_end(kind: Any) -> None:
    """The last steps of each worker have the rewards there are."""
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(500), transform=MultiStepTransform(4, 1.0))
    with kind([make_env] * 2, None, frames_per_batch=22, total_frames=110, replay_buffer=buffer) as collector:
        for _ in collector:
            pass
    data = buffer[:]
    assert len(data) == buffer.write_count == collector.stats()["frames"]
    ids, step = data["collector", "traj_ids"], data["observation"].reshape(len(data), -1)[:, 0].long()
    assert len(torch.stack([ids, step], -1).unique(dim=0)) == len(data)
    lengths = {int(i): int((ids == i).sum()) for i in ids.unique()}
    left = torch.tensor([min(4, lengths[int(i)] - int(s)) for i, s in zip(ids, step - step.min(), strict=True)])
    assert torch.equal(data["steps_to_next_obs"], left)


def test_a_buffer_has_data_of_the_caller_and_of_workers() -> None:
    with SyncDataCollector(make_env(), None, frames_per_batch=20, total_frames=40) as collector:
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=50)
        for data in collector:
            buffer.extend(data)
    with MultiaSyncDataCollector(
        [make_env] * 2, None, frames_per_batch=20, total_frames=100, replay_buffer=buffer
    ) as workers:
        for _ in workers:
            buffer.extend(data)
    assert buffer.write_count == 40 + workers.stats()["frames"] + 5 * 20
    assert torch.equal(buffer[:40]["observation"][20:], data["observation"])


def test_nothing_is_left_of_shared_memory() -> None:
    def fill() -> None:
        buffer = ReplayBuffer(storage=LazyTensorStorage(1000), batch_size=8)
        arguments: dict[str, Any] = {"frames_per_batch": 20, "total_frames": 80, "replay_buffer": buffer}
        with MultiaSyncDataCollector([make_env] * 2, None, **arguments) as collector:
            for _ in collector:
                buffer.sample()

    fill()  # starts the servers, which stay
    gc.collect()
    before, named = len(open_descriptors()), set(os.listdir("/dev/shm"))
    fill()
    gc.collect()
    assert len(open_descriptors()) == before
    assert set(os.listdir("/dev/shm")) == named


def test_lists_are_filled_by_the_caller() -> None:
    """Storages that workers cannot write get their data through the caller."""
    buffer = ReplayBuffer(storage=ListStorage(50), batch_size=4)
    assert buffer.writers(2) is None
    arguments: dict[str, Any] = {"frames_per_batch": 10, "total_frames": 40, "replay_buffer": buffer}
    with MultiaSyncDataCollector([CountingEnv] * 2, None, **arguments) as collector:
        for _ in collector:
            pass
    assert len(buffer) == 40


# -- writers that stop ------------------------------------------------------------------------------------------------


def write_forever(worker: Worker, writer: Any) -> None:
    """Write rows whose entries are all equal, so that torn ones can be told."""
    worker.say(os.getpid())
    number = worker.index
    while True:
        value = torch.full((40, 64), number, dtype=torch.int64)
        writer.extend(TensorDict({"a": value, "b": value.clone()}, [40]))
        number += 2


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_no_row_is_torn_while_workers_write_stop_and_die(storage: Any) -> None:
    """A worker that is stopped or killed costs the rows that it was writing, and nobody waits for it."""
    buffer = ReplayBuffer(storage=storage(2000), batch_size=200)
    value = torch.zeros(1, 64, dtype=torch.int64)
    writers = buffer.writers(2, TensorDict({"a": value, "b": value}, [1]))
    assert writers is not None
    pool = Pool(2, "tests.replay.test_workers:write_forever")
    try:
        pool.begin(writers)
        pids = [pool.receive(worker) for worker in range(2)]

        def check(seconds: float, rows: int = 0) -> None:
            """Sample for some seconds, and on until so many rows were written."""
            begin, n = time.monotonic(), 0
            while time.monotonic() < begin + seconds or not n or buffer.write_count < rows:
                assert time.monotonic() < begin + CHILD
                if not len(buffer):
                    continue
                sample = buffer.sample()
                assert torch.equal(sample["a"], sample["b"])
                assert (sample["a"] == sample["a"][:, :1]).all()
                n += 1

        check(0.5, rows=4000)
        os.kill(pids[0], signal.SIGSTOP)
        check(0.5)
        os.kill(pids[0], signal.SIGCONT)
        check(0.3)
        os.kill(pids[1], signal.SIGKILL)
        check(0.5)
        assert len(buffer) >= 2000 - 2 * 40
        check(0.0, rows=buffer.write_count + 40)
    finally:
        pool.kill()
        pool.stop(1.0)


def test_a_thread_writes_while_another_samples() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(300), batch_size=100)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            value = torch.full((50, 500), number)
            buffer.extend(TensorDict({"a": value, "b": value.clone()}, [50]))
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            if len(buffer):
                sample = buffer.sample()
                assert torch.equal(sample["a"], sample["b"])
    finally:
        stop.set()
        thread.join(CHILD)


def test_epochs_and_priorities_hear_of_workers() -> None:
    buffer = TensorDictPrioritizedReplayBuffer(alpha=1.0, beta=0.5, storage=LazyTensorStorage(400), batch_size=400)
    arguments: dict[str, Any] = {"frames_per_batch": 20, "total_frames": 200, "replay_buffer": buffer}
    with MultiaSyncDataCollector([make_env] * 2, None, **arguments) as collector:
        for _ in collector:
            sample = buffer.sample()
            sample["td_error"] = torch.ones(400)
            buffer.update_tensordict_priority(sample)
    rows = torch.cat([buffer.sample()["index"] for _ in range(20)])
    assert len(rows.unique()) == len(buffer) == min(collector.stats()["frames"], 400)
    assert np.bincount(rows.numpy()).min() > 5
