"""Writers overwrite rows while a reader is between two of its lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe_replay import (
    LazyTensorStorage,
    PrioritizedSliceSampler,
    ReplayBuffer,
    SliceSampler,
    TensorDictPrioritizedReplayBuffer,
    iter_trajectories,
)
from steppe_replay.ring import Follower
from steppe_replay.tensor_storage import TensorStorage
from steppe_replay.trajectory_table import TrajectoryTable
from tests.replay.data import trajectories


def held_up(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, write: Callable[[], Any], calls: int = 1) -> None:
    """Let writers write behind the first calls of a method."""
    method, done = getattr(owner, name), []

    def slow(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if len(done) < calls:
            done.append(True)
            write()
        return result

    monkeypatch.setattr(owner, name, slow)


def assert_whole(rows: TensorDict) -> None:
    """Steps of ``trajectories`` follow each other."""
    assert len(rows["collector", "traj_ids"].unique()) == 1
    assert (rows["step"].diff() == 1).all()


def test_a_stopped_reservation_joins_no_trajectories(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that stops in reserve() has marked columns that still hold data, and that nobody counts yet."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(60), sampler=SliceSampler(slice_len=6), batch_size=600)
    rows = trajectories(12, open_end=True).exclude("collector")  # only the writers tell the trajectories apart
    writers = buffer.writers(2, rows)
    assert writers is not None
    for number in range(5):
        rows["step"] = torch.arange(12) + 12 * (number // 2) + 100 * (number % 2)
        writers[number % 2].extend(rows)
    ring = buffer.storage.ring
    assert ring is not None
    held_up(monkeypatch, Follower, "new", lambda: ring._mark(ring.begun, 30))
    for steps in buffer.sample()["step"].reshape(-1, 6):
        assert (steps.diff() == 1).all()


def test_slices_by_priority_are_those_that_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = PrioritizedSliceSampler(90, 1.0, 1.0, slice_len=5, end_key=("next", "done"))
    buffer = ReplayBuffer(storage=LazyTensorStorage(90), sampler=sampler, batch_size=100)
    buffer.extend(trajectories(*[13] * 8))
    held_up(monkeypatch, TrajectoryTable, "find", lambda: buffer.extend(trajectories(*[7] * 11, first_id=50)), 3)
    for rows in buffer.sample().reshape(20, 5):
        assert_whole(rows)


def numbered(first: int, n: int) -> TensorDict:
    number = torch.arange(first, first + n)
    return TensorDict({"a": number, "b": number.clone(), "c": number.clone()}, [n])


@pytest.mark.parametrize("index", [slice(None), slice(10, 40), [3, 30, 5], 7], ids=str)
def test_rows_that_are_read_by_number_are_whole(index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(50))
    buffer.extend(numbered(0, 60))
    held_up(monkeypatch, type(buffer.storage._leaves["b",]), "take", lambda: buffer.extend(numbered(60, 23)))  # type: ignore[attr-defined]
    monkeypatch.setattr(buffer.storage, "_quick", 0)
    rows = buffer[index]
    assert torch.equal(rows["a"], rows["b"])
    assert torch.equal(rows["a"], rows["c"])
    assert rows.numel() == (27 if index == slice(None) else 7 if isinstance(index, slice) else np.size(index))


@pytest.mark.parametrize("lanes", [1, 3])
def test_checkpoints_have_whole_rows_while_workers_write(
    lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that are overwritten meanwhile are left out, and the others stay in their trajectories."""

    def some(*args: int, **options: Any) -> TensorDict:
        rows = trajectories(*args, **options)
        return rows if lanes == 1 else torch.stack([rows] * lanes)

    def storage() -> LazyTensorStorage:
        return LazyTensorStorage(100 * lanes, ndim=1 if lanes == 1 else 2)

    buffer = ReplayBuffer(storage=storage(), sampler=SliceSampler(slice_len=3, end_key=("next", "done")))
    buffer.extend(some(*[11] * 10))
    held_up(monkeypatch, TensorStorage, "take", lambda: buffer.extend(some(*[9] * 4, first_id=70)))
    buffer.dumps(tmp_path)
    monkeypatch.undo()
    other = ReplayBuffer(storage=storage())
    other.loads(tmp_path)
    assert len(other) == 64 * lanes
    lengths = []
    for rows in iter_trajectories(other):
        assert_whole(rows)
        lengths.append(len(rows))
    assert sorted(lengths) == sorted([11] * 5 * lanes + [9] * lanes)


def test_trajectories_that_are_overwritten_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(60))
    buffer.extend(trajectories(*[10] * 6))
    found = []
    for rows in iter_trajectories(buffer):
        assert_whole(rows)
        found.append((int(rows["collector", "traj_ids"][0]), len(rows)))
        if len(found) == 2:
            buffer.extend(trajectories(13, 11, first_id=40))
    assert found == [(0, 10), (1, 10), (2, 6), (3, 10), (4, 10), (5, 10)]


@pytest.mark.parametrize("calls", [1, 3])
def test_trajectories_are_found_though_writers_lap_the_reader(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are overwritten while the reader looks for trajectories."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(60))
    buffer.extend(trajectories(*[10] * 6))
    first = iter([100, 200, 300])
    held_up(
        monkeypatch, Follower, "new", lambda: buffer.extend(trajectories(*[7] * 9, first_id=next(first))), calls=calls
    )
    found = []
    for rows in iter_trajectories(buffer):
        assert_whole(rows)
        found.append((int(rows["collector", "traj_ids"][0]), len(rows)))
    begun = 100 * calls
    assert found == [(begun, 4), *((begun + number, 7) for number in range(1, 9))]


def pairs(n: int) -> TensorDict:
    """Episodes of two steps, whose images are all different."""
    pixels = torch.arange(4 * n).reshape(2 * n, 2)
    done = torch.tensor([False, True]).repeat(n).unsqueeze(1)
    following = pixels.clone() + 1000_000
    following[::2] = pixels[1::2]
    return TensorDict({"pixels": pixels, "next": {"pixels": following, "done": done}}, [2 * n])


@pytest.mark.parametrize("strict", [True, False])
def test_slices_have_no_frames_that_were_given_up(strict: bool) -> None:
    """More episodes begin than the spare room has frames for."""
    sampler = SliceSampler(slice_len=2, end_key=("next", "done"), strict_length=strict)
    buffer = ReplayBuffer(storage=LazyTensorStorage(40_000, compact="pixels"), sampler=sampler, batch_size=300)
    for part in pairs(24_000).split(2_500):
        buffer.extend(part)
        rows = buffer.sample()
        assert torch.equal(rows["pixels"][:, 1], rows["pixels"][:, 0] + 1)
        last = rows["next", "done"].squeeze(-1)
        assert torch.equal(rows["next", "pixels"][last], rows["pixels"][last] + 1000_000)
    expected = {int(row) for row in pairs(24_000)["pixels"][:, 0]}
    for rows in iter_trajectories(buffer):
        assert set(rows["pixels"][:, 0].tolist()) <= expected
        assert torch.equal(rows["next", "pixels"][:-1], rows["pixels"][1:])


def test_priorities_reach_the_rows_of_a_slow_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are written while new ones are looked for have a priority in the next sample."""
    buffer = TensorDictPrioritizedReplayBuffer(alpha=1.0, beta=1.0, storage=LazyTensorStorage(40), batch_size=400)
    buffer.extend(numbered(0, 40))
    held_up(monkeypatch, type(buffer.storage.ring), "parts", lambda: buffer.extend(numbered(40, 65)))
    for _ in range(2):
        rows = buffer.sample()
        assert torch.equal(rows["a"], rows["b"])
    assert set(rows["a"].tolist()) == set(range(65, 105))
