"""Attributes of an environment beside its specs: batch size, device, sample data."""

from __future__ import annotations

import pytest
import torch

from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
)

ALL = [
    ArrayCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
]


@pytest.mark.parametrize("make", ALL)
def test_the_sample_has_the_entries_of_a_rollout(make):
    env = make()
    sample, data = env.fake_tensordict(), env.rollout(2)

    assert set(sample.keys(True, True)) == set(data[0].keys(True, True))
    assert sample.batch_size == env.batch_size


def test_the_sample_of_a_batch_has_its_size():
    assert CountingEnv(batch_size=(2, 3)).fake_tensordict()["next", "reward"].shape == (2, 3, 1)


def test_moving_moves_specs_and_data():
    env = CountingEnv(device="cpu")

    assert env.to("cpu") is env
    moved = CountingEnv().to("meta")
    assert moved.device == torch.device("meta")
    assert {leaf.device for leaf in moved.full_action_spec.values(True, True)} == {torch.device("meta")}


def test_the_device_is_set_with_to():
    with pytest.raises(AttributeError, match=r"env.to\('meta'\)"):
        CountingEnv(device="cpu").device = "meta"


def test_an_unset_device_can_be_assigned():
    env = CountingEnv()
    env.device = "cpu"

    assert env.device == env.rollout(2).device == env.full_action_spec.device == torch.device("cpu")


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
def test_data_claims_the_device_of_the_environment(make, device):
    env = make(device=device)
    td = env.rand_step(env.reset())

    expected = None if device is None else torch.device(device)
    assert (td.device, td["next"].device) == (expected, expected)


def test_dynamic_specs_are_known():
    assert DynamicSpecEnv().has_dynamic_specs
    assert not CountingEnv().has_dynamic_specs


def test_the_repr_has_batch_size_and_device():
    assert repr(CountingEnv(batch_size=(2,))) == "CountingEnv(batch_size=(2,), device=None)"
