"""Workers write their batches to a replay buffer themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe import Collector, MultiaSyncDataCollector, MultiSyncDataCollector, SerialEnv
from steppe.workers import SharedLock
from steppe_testing import ArrayCountingEnv
from tests.limits import CHILD

KINDS: dict[str, Any] = {"MultiSync": MultiSyncDataCollector, "MultiaSync": MultiaSyncDataCollector}

#: The entries that the buffer of these tests keeps of each frame.
KEPT = ("observation", ("next", "reward"), ("collector", "traj_ids"))


class SharedRows:
    """A replay buffer in shared memory: worker writers append the rows of flat frames under a lock.

    Attributes:
        in_caller: how many frames the caller has extended it with.
    """

    def __init__(self, room: int = 512) -> None:
        self.room, self.lock, self.in_caller = room, SharedLock(), 0
        self.count = torch.zeros(1, dtype=torch.int64).share_memory_()
        self.rows: dict[Any, torch.Tensor] = {}

    @property
    def write_count(self) -> int:
        return int(self.count)

    def _lay_out(self, example: TensorDictBase) -> None:
        for key in KEPT:
            value = example.get(key)
            shape = value.shape[example.batch_dims :]
            self.rows[key] = torch.zeros(self.room, *shape, dtype=value.dtype).share_memory_()

    def writers(self, n: int, example: TensorDictBase) -> list[Any]:
        self._lay_out(example)
        return [Writer(self.lock, self.count, self.rows) for _ in range(n)]

    def extend(self, data: TensorDictBase) -> None:
        if not self.rows:
            self._lay_out(data)
        self.in_caller += data.numel()
        Writer(self.lock, self.count, self.rows).extend(data)

    def data(self) -> TensorDict:
        """The frames, sorted by trajectory; the order within each is the order of writing."""
        n = self.write_count
        frames = TensorDict({key: rows[:n] for key, rows in self.rows.items()}, [n])
        return frames[frames["collector", "traj_ids"].argsort(stable=True)]


class Writer:
    def __init__(self, lock: SharedLock, count: torch.Tensor, rows: dict[Any, torch.Tensor]) -> None:
        self.lock, self.count, self.rows = lock, count, rows

    def extend(self, data: TensorDictBase) -> None:
        flat = data.reshape(-1)
        with self.lock:
            start = int(self.count)
            for key, rows in self.rows.items():
                rows[start : start + len(flat)] = flat.get(key)
            self.count += len(flat)


def make() -> SerialEnv:
    return SerialEnv(2, lambda: ArrayCountingEnv(4, noise=True))


def second(observation: torch.Tensor) -> torch.Tensor:
    return torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)


def collected(buffer: Any, kind: Any = MultiSyncDataCollector, **arguments: Any) -> list[Any]:
    arguments = {"frames_per_batch": 24, "total_frames": 96, "seed": 5, **arguments}
    with kind([make] * 2, **arguments, replay_buffer=buffer) as collector:
        return list(collector)


class InCaller(SharedRows):
    """The same buffer, filled by the caller."""

    def writers(self, n: int, example: TensorDictBase) -> None:  # type: ignore[override]
        return None


def assert_equal_rows(one: SharedRows, other: SharedRows) -> None:
    for key in KEPT:
        assert torch.equal(one.data().get(key), other.data().get(key)), key


def test_workers_write_the_frames_that_the_caller_would() -> None:
    by_workers, by_caller = SharedRows(), InCaller()

    assert collected(by_workers) == collected(by_caller) == [None] * 4
    assert (by_workers.in_caller, by_caller.in_caller) == (0, 96)
    assert_equal_rows(by_workers, by_caller)


def test_workers_process_a_batch_before_they_write_it() -> None:
    def negated(data: TensorDictBase) -> TensorDictBase:
        return data.set("observation", -data["observation"])

    buffer, processed = SharedRows(), SharedRows()
    collected(buffer)
    collected(processed, postproc=negated)

    assert torch.equal(processed.data()["observation"], -buffer.data()["observation"])


def test_workers_write_whole_trajectories_in_one_piece() -> None:
    buffer = SharedRows()
    collected(buffer, trajs_per_batch=1, total_frames=192)
    n = buffer.write_count
    ids = buffer.rows["collector", "traj_ids"][:n]

    assert buffer.in_caller == 0 < n
    numbers, lengths = ids.unique_consecutive(return_counts=True)
    assert len(numbers) == len(numbers.unique()), "no trajectory is interrupted by another one"
    assert lengths.tolist() == [4] * len(lengths), "each episode has four steps"


def test_random_frames_come_through_the_caller() -> None:
    """The layout of a batch is known when the policy has acted, so workers write themselves from then on."""
    policy = TensorDictModule(second, ["observation"], ["action"])
    buffer = SharedRows()
    collected(buffer, policy=policy, init_random_frames=48)

    assert (buffer.in_caller, buffer.write_count) == (48, 96)


def test_a_hook_of_batches_keeps_them_in_the_caller() -> None:
    buffer, batches = SharedRows(), []
    collected(buffer, post_collect_hook=lambda batch: batches.append(batch.numel()))

    assert batches == [24] * 4
    assert buffer.in_caller == 96


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_frame_of_a_running_collector_is_counted_once(kind: Any) -> None:
    buffer = SharedRows(room=1 << 16)
    collector = kind([make] * 2, frames_per_batch=24, replay_buffer=buffer, seed=0)
    collector.start()
    while buffer.write_count < 96:
        with collector.pause():
            paused = buffer.write_count
            assert collector.stats()["frames"] == paused
    collector.async_shutdown(timeout=CHILD)

    assert buffer.in_caller == 0
    assert collector.stats()["frames"] == buffer.write_count >= paused


def test_collectors_in_turns_write_unique_trajectory_numbers() -> None:
    buffer = SharedRows()
    collected(buffer, MultiaSyncDataCollector)
    frames = buffer.data()

    _, lengths = frames["collector", "traj_ids"].unique_consecutive(return_counts=True)
    assert lengths.max() == 4


def test_numbers_of_trajectories_are_interleaved_on_request() -> None:
    with Collector(make, frames_per_batch=16, num_workers=2, total_frames=32) as collector:
        collector.backend.number_trajectories(3, 10)
        ids = torch.cat([batch["collector", "traj_ids"] for batch in collector], -1)

    assert sorted(ids.unique().tolist()) == [3, 13, 23, 33, 43, 53, 63, 73]
