"""Environments of RoboHive in steppe, compared with the double of the library."""

from __future__ import annotations

import sys

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("steppe_robohive")

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound, LibraryMissing
from steppe_robohive import RoboHiveEnv, RoboHiveWrapper

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

NAME = "FrankaReachRandom-v0"


def assert_equal_to_library(data, seed, name=NAME):
    """Take the actions of data ``[T]`` with the library, and compare all entries."""
    raw = gymnasium.make(name)
    raw.unwrapped.seed(seed)
    raw.reset()
    for t in range(len(data)):
        row, following = data[t], data[t]["next"]
        for key in ("qp", "qv", "reach_err"):
            np.testing.assert_array_equal(row[key].numpy(), raw.unwrapped.obs_dict[key].astype(np.float32))
        _, reward, terminated, truncated, info = raw.step(row["action"].numpy())
        assert following["reward"].item() == np.float32(reward)
        assert following["terminated"].item() is terminated
        assert following["truncated"].item() is truncated
        assert following["info", "solved"].item() == info["solved"]
        assert following["info", "rwd_sparse"].item() == info["rwd_sparse"]
        for key in ("qp", "qv", "reach_err"):
            np.testing.assert_array_equal(following[key].numpy(), raw.unwrapped.obs_dict[key].astype(np.float32))
        if terminated or truncated:
            raw.reset()


def test_a_rollout_equals_the_library_over_several_episodes():
    env = make_env(f"robohive:{NAME}")
    env.set_seed(3)

    data = env.rollout(400, break_when_any_done=False)

    assert data["next", "truncated"].sum() > 3
    assert_equal_to_library(data, 3)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, f"robohive:{NAME}")
    batch.set_seed(5)
    data = batch.rollout(120, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(rows, seed)


def test_a_collector_equals_the_library():
    env = RoboHiveEnv(NAME)
    env.set_seed(2)
    collector = SyncDataCollector(env, None, frames_per_batch=100, total_frames=200)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 2)


def test_images_of_the_cameras_are_pixels():
    env = RoboHiveEnv(NAME, from_pixels=True, from_depths=True)
    data = env.rollout(5)

    assert data["pixels"].shape == (5, 2, 224, 224, 3)
    assert data["next", "depths"].shape == (5, 2, 224, 224)
    assert "qp" not in data.keys()
    seen = env._env.unwrapped.get_exteroception()
    np.testing.assert_array_equal(data["next", "pixels"][-1, 1].numpy(), seen["rgb:top_cam:224x224:2d"])
    assert RoboHiveEnv.get_available_cams(NAME) == ["left_cam", "top_cam"]


def test_one_camera_is_chosen_and_observations_are_kept():
    env = RoboHiveEnv(NAME, from_pixels=True, cameras=["top_cam"], pixels_only=False, device="cpu")

    assert env.rollout(2)["pixels"].shape == (2, 1, 224, 224, 3)
    assert env.full_observation_spec["qp"].shape == (2,)
    with pytest.raises(ArgumentError, match=r"\['left_cam', 'top_cam'\], found cameras=\['front'\]"):
        RoboHiveEnv(NAME, from_pixels=True, cameras=["front"])
    with pytest.raises(ArgumentError, match="need from_pixels=True"):
        RoboHiveEnv(NAME, cameras=["top_cam"])


def test_features_of_another_encoder_have_their_key():
    key = "rgb:top_cam:64x64:r3m18"
    env = RoboHiveWrapper(gymnasium.make(NAME, visual_keys=[key]), read_info=False)

    data = env.rollout(2)

    assert data[key].shape == (2, 512)
    assert "info" not in data.keys()
    assert env.obs_keys == ["qp", "qv", "reach_err"]


def test_missing_models_say_how_to_load_them(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "robohive"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setenv("STEPPE_DOUBLE_WITHOUT_SIMHIVE", "1")

    with pytest.raises(LibraryMissing, match="python -m robohive_init"):
        make_env(f"robohive:{NAME}")


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'FrankaReachFixed-v0'"):
        make_env("robohive:FrankaReachFixd-v0")


def test_several_workers_make_a_batch():
    batch = RoboHiveEnv(NAME, num_workers=2)
    assert isinstance(batch, ParallelEnv)
    assert batch.rollout(2).shape == (2, 2)
    batch.close()
