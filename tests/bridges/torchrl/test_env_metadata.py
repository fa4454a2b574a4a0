"""EnvMetaData, and what EnvCreator returns of it."""

from __future__ import annotations

import pickle

import pytest
import torch

pytest.importorskip("steppe_torchrl")

import steppe
from steppe_testing import CountingEnv, assert_equal_data
from steppe_torchrl import EnvMetaData, get_env_metadata


def test_metadata_describes_an_environment_without_it():
    env = CountingEnv(batch_size=(2,))
    data = EnvMetaData.metadata_from_env(env)

    assert data.batch_size == (2,)
    assert data.specs["input_spec", "full_action_spec", "action"] == env.action_spec
    assert data.batch_locked
    assert "CountingEnv" in data.env_str
    assert_equal_data(data.tensordict, env.fake_tensordict())


def test_metadata_can_be_pickled():
    data = EnvMetaData.metadata_from_env(CountingEnv(batch_size=(2,)))

    assert pickle.loads(pickle.dumps(data)).specs == data.specs


def test_metadata_can_be_read_of_what_makes_an_environment():
    made = []

    def make(**kwargs):
        made.append(CountingEnv(**kwargs))
        return made[-1]

    assert get_env_metadata(make, {"batch_size": (2,)}).specs == CountingEnv(batch_size=(2,)).specs
    assert made[0].is_closed

    env = CountingEnv()
    assert get_env_metadata(env).env_str == repr(env)
    assert not env.is_closed


def test_metadata_is_made_of_its_parts_and_changed():
    data = EnvMetaData.metadata_from_env(CountingEnv())
    names = ("tensordict", "specs", "batch_size", "env_str", "device", "batch_locked", "device_map")
    again = EnvMetaData(**{name: getattr(data, name) for name in names})
    again.env_str = "another"

    assert again.specs == data.specs
    assert again.device_map["observation"] == torch.device("cpu")


def test_steppe_finds_the_class_by_its_name():
    pytest.importorskip("torchrl")

    assert steppe.EnvMetaData is EnvMetaData
