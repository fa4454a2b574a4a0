"""SB3's algorithms take images, dicts and masks of actions from batches of steppe."""

from __future__ import annotations

import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO

from steppe import SerialEnv
from steppe_sb3 import as_vec_env, make_vec_env
from tests.bridges.sb3.test_vec_env import Masked, Seen

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def test_ppo_runs_on_images_and_dicts():
    env = make_vec_env(Seen, 2, num_processes=0)
    model = PPO("MultiInputPolicy", env, n_steps=8, batch_size=8, n_epochs=1, device="cpu").learn(32)
    env.close()
    assert model.num_timesteps == 32


def test_masked_ppo_takes_allowed_actions():
    contrib = pytest.importorskip("sb3_contrib")
    env = as_vec_env(SerialEnv(2, Masked))
    model = contrib.MaskablePPO("MultiInputPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu")
    model.learn(128)
    assert float(model.rollout_buffer.rewards.min()) == 1.0
    env.close()
