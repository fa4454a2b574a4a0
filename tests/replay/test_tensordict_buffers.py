"""Buffers of TensorDicts and of priorities: priorities in data, in samples, and in lists."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.errors import SpecError
from steppe_replay import (
    LazyTensorStorage,
    ListStorage,
    PrioritizedReplayBuffer,
    TensorDictPrioritizedReplayBuffer,
)
from tests.replay.data import numbered


def test_priorities_are_read_from_the_sample() -> None:
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, eps=0.0, storage=LazyTensorStorage(10), batch_size=4
    )
    buffer.extend(numbered(10))
    buffer.update_priority(torch.arange(10), torch.zeros(10).index_fill(0, torch.tensor([3, 7]), 2.0))
    sample = buffer.sample(100)
    assert set(sample["number"].tolist()) == {3, 7}
    assert torch.equal(sample["index"], sample["number"])
    sample["td_error"] = torch.where(sample["number"] == 3, 6.0, 2.0)
    buffer.update_tensordict_priority(sample)
    share = (buffer.sample(4000)["number"] == 3).float().mean()
    assert 0.7 < share < 0.8
    with pytest.raises(SpecError, match="'td_error'"):
        buffer.update_tensordict_priority(buffer.sample())


def test_rows_bring_their_priorities() -> None:
    buffer = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=0.4, eps=0.0, storage=LazyTensorStorage(8, ndim=2), batch_size=200, priority_key="p"
    )
    buffer.extend(TensorDict({"a": torch.arange(8).view(2, 4), "p": torch.eye(2, 4)}, [2, 4]))
    assert set(buffer.sample()["a"].tolist()) == {0, 5}


def test_lists_have_priorities_too() -> None:
    buffer = PrioritizedReplayBuffer(alpha=1.0, beta=0.5, eps=0.0, storage=ListStorage(), batch_size=50)
    buffer.extend(range(1500))
    buffer.update_priority(torch.arange(1500), 0.0)
    buffer.extend(range(1500, 3000))  # the list grows, and has 3000 rows now
    buffer.update_priority(torch.arange(1500, 3000), 0.0)
    buffer.update_priority(torch.tensor([17, 2900]), torch.tensor([1.0, 1.0]))
    sample, info = buffer.sample(return_info=True)
    assert set(sample.tolist()) == {17, 2900}
    assert info["priority_weight"].shape == (50,)
