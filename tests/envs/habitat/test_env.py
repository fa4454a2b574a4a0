"""Tasks of Habitat in steppe, compared with the double of the library."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

pytest.importorskip("steppe_habitat")

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound
from steppe_habitat import HabitatEnv, HabitatWrapper
from steppe_testing.doubles.habitat_double import make

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

NAME = "HabitatPick-v0"


def assert_equal_to_library(data, seed):
    """Take the actions of data ``[T]`` with the library, and compare all entries."""
    raw = make("pick.yaml")
    raw.seed(seed)
    seen = raw.reset()
    for t in range(len(data)):
        row, following = data[t], data[t]["next"]
        for key, value in seen.items():
            np.testing.assert_array_equal(row[key].numpy(), value)
        seen, reward, done, _ = raw.step(row["action"].numpy())
        assert following["reward"].item() == np.float32(reward)
        assert following["done"].item() is done
        assert following["terminated"].item() is (done and not raw._env.task.is_episode_active)
        for key, value in seen.items():
            np.testing.assert_array_equal(following[key].numpy(), value)
        if done:
            seen = raw.reset()


def test_a_rollout_equals_the_library_over_several_episodes():
    env = make_env(f"habitat:{NAME}")
    env.set_seed(3)

    data = env.rollout(300, break_when_any_done=False)

    assert data["next", "terminated"].any()
    assert data["next", "truncated"].any()
    assert_equal_to_library(data, 3)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, f"habitat:{NAME}")
    batch.set_seed(5)
    data = batch.rollout(80, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(rows, seed)


def test_a_collector_equals_the_library():
    env = HabitatEnv(NAME)
    env.set_seed(2)
    collector = SyncDataCollector(env, None, frames_per_batch=60, total_frames=120)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 2)


def test_draws_of_others_change_no_data():
    first, second = HabitatEnv(NAME), HabitatEnv(NAME)
    one = []
    for env in (first, second):
        env.set_seed(3)
        drawn = []
        for _ in range(3):
            drawn.append(env.reset()["goal"])
            if env is second:
                random.random()
                np.random.rand()
        one.append(torch.stack(drawn))
    assert torch.equal(*one)


def test_frames_are_pixels():
    env = HabitatEnv("HabitatRenderPick-v0", from_pixels=True)
    data = env.rollout(3)
    assert data["next", "pixels"].shape == (3, 16, 24, 3)
    assert "head_rgb" not in data.keys()


def test_options_reach_the_configuration():
    env = HabitatEnv(NAME, override_options=["habitat.environment.max_episode_steps=4"])
    assert len(env.rollout(100, lambda td: td.set("action", torch.zeros(3)))) <= 4


def test_a_task_made_elsewhere_is_wrapped():
    env = HabitatWrapper(make("pick.yaml"))
    assert len(env.rollout(2)) == 2
    assert env.full_observation_spec["head_rgb"].dtype == torch.uint8


def test_workers_have_devices():
    batch = HabitatEnv(NAME, num_workers=2, device=["cpu", "cpu"])
    assert isinstance(batch, ParallelEnv)
    assert batch.rollout(2).shape == (2, 2)
    batch.close()
    with pytest.raises(ArgumentError, match="one for each of num_workers=3"):
        HabitatEnv(NAME, num_workers=3, device=["cpu", "cpu"])


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'HabitatPick-v0'"):
        make_env("habitat:HabitatPik-v0")
