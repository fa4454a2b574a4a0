"""Trajectories of several writers: they go on over writes between which other writers have written."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

from steppe_replay import (
    BufferWriter,
    LazyTensorStorage,
    PrioritizedSliceSampler,
    ReplayBuffer,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    iter_trajectories,
)
from steppe_replay.ring import Follower
from tests.replay.chi_square import follows
from tests.replay.data import trajectories


class Source:
    """A writer with trajectories of random lengths, which it writes in parts of random lengths.

    Args:
        writer: the writer.
        generator: draws the lengths.
        number: its trajectories have the numbers ``1000 * number``, ...
        lanes: number of environments; 0: one without a dimension.
    """

    def __init__(self, writer: BufferWriter, generator: np.random.Generator, number: int, lanes: int = 0) -> None:
        self.writer, self.generator, self.at = writer, generator, 0
        rows = [
            trajectories(*generator.integers(1, 40, 60).tolist(), first_id=1000 * number + 100 * lane)
            for lane in range(max(lanes, 1))
        ]
        n = min(len(row) for row in rows)
        self.data: TensorDictBase = torch.stack([row[:n] for row in rows]) if lanes else rows[0]

    def write(self) -> None:
        n = int(self.generator.integers(1, 12))
        self.writer.extend(self.data[..., self.at : self.at + n])
        self.at += n


def filled(sampler: Any, size: int, writes: int, *, lanes: int = 0, seed: int = 0, sources: int = 2) -> ReplayBuffer:
    """Return a buffer that several writers have filled by turns; it is sampled between the writes."""
    generator = np.random.default_rng(seed)
    ndim = 2 if lanes else 1
    buffer = ReplayBuffer(storage=LazyTensorStorage(size, ndim=ndim), sampler=sampler)
    example = trajectories(3)
    writers = buffer.writers(sources, example.expand(lanes, 3) if lanes else example)
    assert writers is not None
    each = [Source(writer, generator, i, lanes) for i, writer in enumerate(writers)]
    for number in range(writes):
        each[int(generator.integers(sources))].write()
        if number % 7 == 0:
            sampler.table(buffer.storage)
    return buffer


def expected(buffer: ReplayBuffer) -> dict[int, list[int]]:
    """Return the steps of each trajectory that are left in the buffer."""
    rows = buffer.storage.take(buffer.storage.by_age())
    result: dict[int, list[int]] = {}
    for id, step in zip(rows["collector", "traj_ids"].tolist(), rows["step"].tolist(), strict=True):
        result.setdefault(id, []).append(step)
    return result


@pytest.mark.parametrize("lanes", [0, 3])
@pytest.mark.parametrize("keys", [{"end_key": ("next", "done")}, {"traj_key": ("collector", "traj_ids")}], ids=str)
@pytest.mark.parametrize("writes", [40, 150])
def test_trajectories_go_on_over_writes_of_others(keys: Any, writes: int, lanes: int) -> None:
    """Also where the buffer is full, and where the first steps were overwritten."""
    sampler = SliceSampler(slice_len=3, **keys)
    buffer = filled(sampler, 400 * max(lanes, 1), writes, lanes=lanes, sources=3)
    table = sampler.table(buffer.storage)
    left = expected(buffer)

    found = {}
    for start, stop, lane in zip(table.starts, table.stops, table.lanes, strict=True):
        steps = np.arange(start, stop)
        rows = buffer.storage.take(table.rows_of(steps, np.full(len(steps), lane)))
        assert len(rows["collector", "traj_ids"].unique()) == 1
        found[int(rows["collector", "traj_ids"][0])] = rows["step"].tolist()
    assert found == left
    assert any(len(steps) > 24 for steps in left.values()), "some are longer than two writes"


def test_slices_of_two_writers_are_equally_likely() -> None:
    """Trajectories with equal probability, then starts, although both writers have written in between."""
    buffer = filled(SliceSampler(slice_len=15, end_key=("next", "done")), 300, 90)
    slices = buffer.sample(15 * 20_000).reshape(-1, 15)
    ids, step = slices["collector", "traj_ids"], slices["step"]
    usable = {id: len(steps) - 14 for id, steps in expected(buffer).items() if len(steps) >= 15}

    assert (ids == ids[:, :1]).all()
    assert torch.equal(step, step[:, :1] + torch.arange(15))
    where = {
        (id, steps[0] + i): 1 / usable[id] for id, steps in expected(buffer).items() for i in range(usable.get(id, 0))
    }
    drawn = list(zip(ids[:, 0].tolist(), step[:, 0].tolist(), strict=True))
    assert set(drawn) <= set(where)
    numbers = {place: i for i, place in enumerate(where)}
    assert follows(np.bincount([numbers[place] for place in drawn], minlength=len(where)), np.array([*where.values()]))


@pytest.mark.parametrize("lanes", [0, 2])
def test_slices_by_priority_go_on_over_writes_of_others(lanes: int) -> None:
    size = 300 * max(lanes, 1)
    sampler = PrioritizedSliceSampler(size, 1.0, 1.0, slice_len=20, end_key=("next", "done"))
    buffer = filled(sampler, size, 120, lanes=lanes)
    slices = buffer.sample(20 * 500).reshape(500, 20)
    ids = slices["collector", "traj_ids"]

    assert (ids == ids[:, :1]).all()
    assert torch.equal(slices["step"], slices["step"][:, :1] + torch.arange(20))
    starts = {(id, steps[i]) for id, steps in expected(buffer).items() for i in range(len(steps) - 19)}
    drawn = set(zip(ids[:, 0].tolist(), slices["step"][:, 0].tolist(), strict=True))
    assert drawn <= starts
    assert len(drawn) > 0.8 * len(starts)


def test_emptied_buffers_have_no_links_to_former_rows() -> None:
    sampler = SliceSampler(slice_len=2, end_key=("next", "done"))
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), sampler=sampler, batch_size=2)
    writers = buffer.writers(2, trajectories(1))
    assert writers is not None
    for writer in writers:
        writer.extend(trajectories(5, open_end=True))
    buffer.empty()
    for number, writer in enumerate([writers[1], writers[0]]):
        writer.extend(trajectories(4, first_id=number, open_end=True))
    table = sampler.table(buffer.storage)

    assert sorted(zip(table.starts.tolist(), table.stops.tolist(), strict=True)) == [(0, 4), (4, 8)]


@pytest.mark.parametrize("lanes", [0, 2])
@pytest.mark.parametrize("size", [1, 2])
def test_loaded_trajectories_are_those_that_were_saved(lanes: int, size: int, tmp_path: Path) -> None:
    """Rows of several writers stand between each other, also in a buffer of another size."""
    buffer = filled(SliceSampler(slice_len=3, end_key=("next", "done")), 200 * max(lanes, 1), 80, lanes=lanes)
    buffer.dumps(tmp_path)
    sampler = SliceSampler(slice_len=3, end_key=("next", "done"))
    other = ReplayBuffer(storage=LazyTensorStorage(size * 200 * max(lanes, 1), ndim=2 if lanes else 1), sampler=sampler)
    other.loads(tmp_path)

    found = {}
    for steps in iter_trajectories(other):
        assert len(steps["collector", "traj_ids"].unique()) == 1
        found[int(steps["collector", "traj_ids"][0])] = steps["step"].tolist()
    assert found == expected(buffer)
    table = sampler.table(other.storage)
    assert sorted(table.stops - table.starts) == sorted(map(len, found.values()))


@pytest.mark.parametrize("sampler", [SliceSampler(slice_len=3), SliceSamplerWithoutReplacement(slice_len=3)], ids=repr)
def test_a_slow_reader_reads_what_overwrote_the_columns(sampler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers fill the whole storage again between two lines of the reader."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(40), sampler=sampler)
    buffer.extend(trajectories(*[10] * 4))
    new, later = Follower.new, iter([(100, 5), (200, 20), (300, 1)])

    def slow(self: Follower) -> Any:
        ranges = new(self)
        for first, n in itertools.islice(later, 1):
            buffer.extend(trajectories(*[9] * n, first_id=first))
        return ranges

    monkeypatch.setattr(Follower, "new", slow)
    rows = buffer.sample(12)["collector", "traj_ids"].reshape(4, 3)
    assert (rows == rows[:, :1]).all()
    assert rows.min() >= 200
