"""Frames that are stored once give the data that was written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe_replay import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer, SliceSampler, TensorDictReplayBuffer


def stream(n: int, k: int, seed: int, *, padding: str = "same", lanes: int = 0) -> TensorDictBase:
    """Return transitions of episodes of random length with stacks of ``k`` frames, and everything also in "copy"."""
    generator = np.random.default_rng(seed)
    rows: list[TensorDict] = []
    number, left, stack = 0, 0, []
    for _ in range(n):
        if not left:
            left, number = int(generator.integers(1, 12)), number + 100
            stack = [number if padding == "same" else 0] * (k - 1) + [number]
        number += 1
        following = [*stack[1:], number]
        left -= 1
        root, after = (
            torch.tensor(each, dtype=torch.int32).reshape(k, 1, 1).expand(k, 2, 2) for each in (stack, following)
        )
        rows.append(
            TensorDict(
                {
                    "pixels": root,
                    "copy": root,
                    "step": torch.tensor(number),
                    "next": {"pixels": after, "copy": after, "done": torch.tensor([left == 0])},
                }
            )
        )
        stack = following
    return torch.stack(rows)


def check(data: TensorDictBase) -> None:
    assert torch.equal(data["pixels"], data["copy"])
    assert torch.equal(data["next", "pixels"], data["next", "copy"])


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("padding", ["same", "constant"])
@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
def test_samples_are_what_was_written(k: int, padding: str, storage: Any) -> None:
    """At beginnings and ends of episodes, where the buffer wraps, and at the place where it is written."""
    data = stream(400, k, k, padding=padding)
    buffer = TensorDictReplayBuffer(storage=storage(60, compact={"pixels": k}), batch_size=300)
    generator, at, lengths = np.random.default_rng(0), 0, []
    while at < 400:
        n = int(generator.integers(1, 25))
        buffer.extend(data[at : at + n])
        at = min(at + n, 400)
        sample = buffer.sample()
        check(sample)
        check(buffer[:])
        assert set(sample["step"].tolist()) <= set(data["step"][max(0, at - 60 - k) : at].tolist())
        lengths.append(len(buffer))
    assert lengths[-1] >= 56
    assert sorted(buffer[:]["step"].tolist())[-50:] == sorted(data["step"][-50:].tolist())


def test_frames_take_a_fraction_of_the_memory() -> None:
    data = stream(300, 4, 0)
    buffer = ReplayBuffer(storage=LazyTensorStorage(100_000, compact={"pixels": 4}))
    plain = ReplayBuffer(storage=LazyTensorStorage(100_000))
    for each in (buffer, plain):
        each.extend(data.select("pixels", ("next", "pixels"), ("next", "done")))

    def frames(of: Any) -> float:
        arrays = of.storage._memory.arrays
        return sum(
            array.nbytes for key, array in arrays.items() if "pixels" in key and key[0] not in ("#addresses", "#oldest")
        )

    assert frames(buffer) < frames(plain) / 7


def test_lanes_have_frames_of_their_own() -> None:
    data = torch.stack([stream(120, 2, seed) for seed in range(3)])
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(3 * 40, ndim=2, compact={"pixels": 2}),
        sampler=SliceSampler(slice_len=2, end_key=("next", "done")),
    )
    for at in range(0, 120, 15):
        buffer.extend(data[:, at : at + 15])
        slices = buffer.sample(400).reshape(-1, 2)
        check(slices)
        assert torch.equal(slices["step"][:, 1], slices["step"][:, 0] + 1)
        check(buffer[:])


def test_data_that_does_not_follow_is_kept_too() -> None:
    """Rows in any order, with roots that are no next of the row before."""
    data = stream(200, 3, 5)
    data = data[torch.randperm(200)]
    buffer = ReplayBuffer(storage=LazyTensorStorage(64, compact={"pixels": 3}), batch_size=200)
    for part in data.split(7):
        buffer.extend(part)
        check(buffer.sample())
    assert len(buffer) >= 60
    odd = data[:20].clone()
    odd["next", "pixels"] += 1  # stacks that do not slide
    odd["next", "copy"] += 1
    buffer.extend(odd)
    check(buffer.sample())


def test_rows_are_given_up_when_episodes_are_too_short() -> None:
    """The spare room holds the beginnings of episodes; when it is too small, old rows go."""
    data = stream(2000, 1, 1)[torch.randperm(2000)]
    buffer = ReplayBuffer(storage=LazyTensorStorage(20_000, compact=["pixels"]), batch_size=500)
    for part in data.repeat(5).split(500):
        buffer.extend(part)
        check(buffer.sample())
    rows = len(buffer[:])
    assert 1000 < rows < 3000


def test_a_compact_storage_says_what_it_needs() -> None:
    data = stream(5, 4, 0)
    with pytest.raises(SpecError, match="compact_obs=True"):
        ReplayBuffer(storage=LazyTensorStorage(9, compact=["pixels"])).extend(data.exclude(("next", "pixels")))
    with pytest.raises(SpecError, match="stacks of 3 frames"):
        ReplayBuffer(storage=LazyTensorStorage(9, compact={"pixels": 3})).extend(data)
    buffer = ReplayBuffer(storage=LazyTensorStorage(9, compact="pixels"))
    buffer.extend(data)
    with pytest.raises(NotSupported, match="may show the same frames"):
        buffer[0] = data[1]
