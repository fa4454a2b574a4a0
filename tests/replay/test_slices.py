"""Slices of trajectories: their law, and the ends that they never cross."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import NotSupported, SpecError, StateError
from steppe_replay import (
    LazyTensorStorage,
    PrioritizedSliceSampler,
    ReplayBuffer,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from tests.replay.chi_square import follows
from tests.replay.data import trajectories

KEYS: dict[str, dict[str, Any]] = {
    "ends": {"end_key": ("next", "done")},
    "numbers": {"traj_key": ("collector", "traj_ids")},
    "found in the data": {},
}


def slices_of(buffer: Any, length: int, n: int = 400) -> TensorDictBase:
    """Sample slices ``[n, length]``."""
    return buffer.sample(n * length).reshape(n, length)


def check_whole(slices: TensorDictBase) -> None:
    """Each slice has consecutive steps of one trajectory."""
    length = slices.shape[1]
    assert torch.equal(slices["step"], slices["step"][:, :1] + torch.arange(length))
    assert (slices["collector", "traj_ids"] == slices["collector", "traj_ids"][:, :1]).all()


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_trajectories_then_starts_are_equally_likely(keys: Any) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=SliceSampler(slice_len=4, **keys))
    buffer.extend(trajectories(3, 9, 4, 12, open_end=True))
    slices = slices_of(buffer, 4, 6000)

    check_whole(slices)
    start = slices["step"][:, 0] + 20 * slices["collector", "traj_ids"][:, 0]
    weights = np.zeros(80)
    weights[20:26], weights[40], weights[60:69] = 1 / 6, 1.0, 1 / 9
    assert follows(np.bincount(start.numpy(), minlength=80), weights)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("lanes", [1, 3])
def test_slices_stay_whole_while_the_buffer_wraps(keys: Any, lanes: int) -> None:
    """Slices cross neither ends nor the place where data is written, whatever the size of the writes."""
    generator = np.random.default_rng(lanes)
    storage = LazyTensorStorage(97 * lanes, ndim=1 if lanes == 1 else 2)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=SliceSampler(slice_len=5, **keys))
    streams = [
        trajectories(*generator.integers(1, 30, 80).tolist(), first_id=1000 * lane)[:1000] for lane in range(lanes)
    ]
    stream, at = torch.stack(streams), 0
    while at < 1000:
        n = int(generator.integers(1, 40))
        buffer.extend(stream[0, at : at + n] if lanes == 1 else stream[:, at : at + n])
        at += n
        if at > 60:
            slices = slices_of(buffer, 5, 60)
            check_whole(slices)
            assert slices["next", "truncated"][:, -1].all()
            assert not slices["next", "truncated"][:, :-1].any()
            assert torch.equal(slices["next", "done"][:, -1], slices["next", "truncated"][:, -1])


def test_slices_know_all_that_is_left() -> None:
    """After wrapping, exactly the possible starts are drawn."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(20), sampler=SliceSampler(slice_len=3))
    data = trajectories(8, 7, 9, 6)
    for part in data.split(5):
        buffer.extend(part)
    slices = slices_of(buffer, 3, 3000)
    starts = set(zip(slices["collector", "traj_ids"][:, 0].tolist(), slices["step"][:, 0].tolist(), strict=True))
    # 30 steps were written, and the last 20 are left: the second trajectory from step 2 on.
    assert starts == {(1, step) for step in range(2, 5)} | {(2, step) for step in range(7)} | {
        (3, step) for step in range(4)
    }


def test_shorter_trajectories_are_taken_whole() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), sampler=SliceSampler(num_slices=200, strict_length=False))
    buffer.extend(trajectories(2, 9))
    sample = buffer.sample(200 * 5)
    ids, counts = sample["collector", "traj_ids"].unique(return_counts=True)
    assert ids.tolist() == [0, 1]
    assert counts[0] % 2 == counts[1] % 5 == 0
    assert counts[0] // 2 + counts[1] // 5 == 200


def test_slices_may_hang_over_an_end() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(50), sampler=SliceSampler(num_slices=300, span=(False, True)))
    buffer.extend(trajectories(6, 6))
    sample, info = buffer.sample(300 * 4, return_info=True)
    ends = info["next", "truncated"].squeeze(-1)
    lengths = torch.diff(torch.cat([torch.tensor([-1]), ends.nonzero().squeeze(-1)]))
    assert set(lengths.tolist()) == {1, 2, 3, 4}
    first = torch.cat([torch.tensor([True]), ends[:-1]])
    assert set(sample["step"][first].tolist()) == set(range(6))
    with pytest.raises(SpecError, match="span must be smaller"):
        ReplayBuffer(storage=buffer.storage, sampler=SliceSampler(slice_len=2, span=3)).sample(4)


def test_an_epoch_has_a_slice_of_each_trajectory() -> None:
    sampler = SliceSamplerWithoutReplacement(num_slices=2)
    buffer = ReplayBuffer(storage=LazyTensorStorage(60), sampler=sampler, batch_size=6)
    buffer.extend(trajectories(5, 7, 2, 3, 8, 9))
    for _ in range(3):
        ids = [int(i) for batch in buffer for i in batch.reshape(-1, 3)["collector", "traj_ids"][:, 0]]
        assert sorted(ids) == [0, 1, 3, 4, 5]
    many = SliceSamplerWithoutReplacement(num_slices=6)
    with pytest.raises(StateError, match=r"a sample of 6 slices without replacement .* there are 5 that are long"):
        ReplayBuffer(storage=buffer.storage, sampler=many).sample(18)


def test_starts_in_an_epoch_are_equally_likely() -> None:
    sampler = SliceSamplerWithoutReplacement(num_slices=3)
    buffer = ReplayBuffer(storage=LazyTensorStorage(60), sampler=sampler)
    buffer.extend(trajectories(5, 7, 2, 12))
    slices = torch.cat([buffer.sample(3 * 4).reshape(3, 4) for _ in range(3000)])
    start = slices["step"][:, 0] + 20 * slices["collector", "traj_ids"][:, 0]
    weights = np.zeros(80)
    weights[0:2], weights[20:24], weights[60:69] = 1 / 2, 1 / 4, 1 / 9

    check_whole(slices)
    # Each epoch has each trajectory; only the starts within them are drawn.
    for first in (0, 20, 60):
        part = slice(first, first + 20)
        assert follows(np.bincount(start.numpy(), minlength=80)[part], weights[part])
    first_ids = slices.reshape(-1, 3, 4)["collector", "traj_ids"][:, 0, 0]
    assert follows(np.bincount(first_ids.numpy(), minlength=4)[[0, 1, 3]], np.ones(3))


def test_slices_begin_in_proportion_to_priorities() -> None:
    sampler = PrioritizedSliceSampler(30, 1.0, 0.5, eps=0.0, slice_len=3)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(30), sampler=sampler)
    buffer.extend(trajectories(2, 5, 10))
    priority = torch.arange(1.0, 18.0)
    buffer.update_priority(torch.arange(17), priority)
    slices = slices_of(buffer, 3, 5000)
    check_whole(slices)
    first = slices["index"][:, 0].numpy()
    possible = np.zeros(17)
    for row in (*range(2, 5), *range(7, 15)):
        possible[row] = priority[row]
    assert follows(np.bincount(first, minlength=17), possible)
    assert torch.allclose(slices["priority_weight"][:, 0], (priority[first]) ** -0.5)
    # Only the last steps have a priority, where no slice begins.
    buffer.update_priority(torch.arange(17), torch.zeros(17).index_fill(0, torch.tensor([4, 15, 16]), 1.0))
    assert set(slices_of(buffer, 3)["index"][:, 0].tolist()) == {4}
    with pytest.raises(NotSupported, match="equal length"):
        PrioritizedSliceSampler(30, 1.0, 0.5, slice_len=3, strict_length=False)


def test_fixed_ends_describe_a_data_set() -> None:
    data = TensorDict({"step": torch.arange(12) % 6, "collector": {"traj_ids": torch.arange(12) // 6}}, [12])
    for source in ({"ends": torch.arange(12) % 6 == 5}, {"trajectories": torch.arange(12) // 6}):
        buffer = ReplayBuffer(storage=LazyTensorStorage(12), sampler=SliceSampler(slice_len=4, **source))
        buffer.extend(data)
        check_whole(slices_of(buffer, 4))
        buffer.extend(data[:1])
        buffer.sampler.forget()
        with pytest.raises(SpecError, match="does not change"):
            buffer.sample(4)


def test_invalid_arguments_of_slices_are_refused() -> None:
    with pytest.raises(SpecError, match="either num_slices= or slice_len="):
        SliceSampler()
    with pytest.raises(SpecError, match="one of end_key, traj_key"):
        SliceSampler(slice_len=2, end_key="done", traj_key="traj")
    with pytest.raises(TypeError, match="did you mean 'slice_len'"):
        SliceSampler(slice_length=2)
    buffer = ReplayBuffer(storage=LazyTensorStorage(20), sampler=SliceSampler(slice_len=6))
    buffer.extend(trajectories(3, 5))
    with pytest.raises(StateError, match="has 6 steps; the longest has 5"):
        buffer.sample(6)
    with pytest.raises(SpecError, match="must be a multiple of 6, found 8"):
        buffer.sample(8)
    buffer.extend(trajectories(9, first_id=2))
    check_whole(slices_of(buffer, 6))
    other = ReplayBuffer(storage=LazyTensorStorage(20), sampler=SliceSampler(slice_len=2, traj_key="nowhere"))
    other.extend(trajectories(4))
    for _ in range(2):
        with pytest.raises(KeyError, match=r"no entry .*nowhere"):
            other.sample(2)
    by_end = ReplayBuffer(storage=other.storage, sampler=SliceSampler(slice_len=2, end_key=("next", "over")))
    for _ in range(2):
        with pytest.raises(KeyError, match=r"no entry \('next', 'over'\).* 'step'"):
            by_end.sample(2)
