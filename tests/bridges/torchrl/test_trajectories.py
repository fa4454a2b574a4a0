"""Data is cut into trajectories as TorchRL cuts it."""

from __future__ import annotations

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from steppe import split_trajectories
from steppe_testing import assert_equal_data

theirs = pytest.importorskip("torchrl.collectors.utils").split_trajectories


def data(**entries):
    done = torch.zeros(2, 8, 1, dtype=torch.bool)
    done[0, 2] = done[1, 5] = True
    values = torch.arange(16).reshape(2, 8)
    picture = torch.rand(2, 8, 3, 4)
    return TensorDict({"value": values, "picture": picture, "next": {"done": done, "stop": ~done}, **entries}, [2, 8])


IDS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1], [2, 2, 2, 2, 2, 2, 3, 3]])


@pytest.mark.parametrize(
    ("entries", "arguments"),
    [
        ({}, {}),
        ({}, {"done_key": "stop"}),
        ({}, {"prefix": "collector"}),
        ({}, {"trajectory_key": ("collector", "episode")}),
        ({"collector": {"traj_ids": IDS}}, {}),
        ({"collector": {"traj_ids": IDS}}, {"trajectory_key": ("collector", "traj_ids")}),
        ({"collector": {"traj_ids": IDS}, "episode": IDS}, {"trajectory_key": "episode"}),
        ({"text": NonTensorStack(*(NonTensorStack(*"abcdefgh") for _ in range(2)))}, {}),
    ],
)
def test_keys_values_and_padding_are_torchrls(entries, arguments):
    given = data(**entries)

    assert_equal_data(split_trajectories(given.clone(), **arguments), theirs(given.clone(), **arguments))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_trajectories_are_torchrls():
    given = data(collector={"traj_ids": IDS}).exclude("picture")
    ours, expected = (split(given, as_nested=True) for split in (split_trajectories, theirs))

    assert ours.batch_size == expected.batch_size == (4, -1)
    ours, expected = (nested.to_padded_tensor(mask_key=("collector", "mask")) for nested in (ours, expected))
    assert_equal_data(ours, expected)
