"""SB3's algorithms learn on batches of steppe."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import DQN, PPO, SAC

from steppe_sb3 import make_vec_env

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def one_thread():
    """The networks are small, so that a second thread of torch only waits for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def last_returns(model, n=20):
    return float(np.mean([episode["r"] for episode in list(model.ep_info_buffer)[-n:]]))


def test_ppo_learns_cartpole():
    env = make_vec_env("CartPole-v1", 8, seed=0, num_processes=0)
    model = PPO(
        "MlpPolicy",
        env,
        n_steps=64,
        batch_size=128,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=0.9,
        learning_rate=1e-3,
        seed=0,
        device="cpu",
    )
    model.learn(26_624)
    env.close()
    assert last_returns(model) >= 200


def test_dqn_learns_frozen_lake():
    env = make_vec_env("FrozenLake-v1", 4, seed=0, num_processes=0, env_kwargs={"is_slippery": False})
    model = DQN(
        "MlpPolicy",
        env,
        learning_starts=500,
        exploration_fraction=0.5,
        learning_rate=1e-3,
        target_update_interval=200,
        train_freq=1,
        seed=0,
        device="cpu",
    )
    model.learn(8_000)
    env.close()
    assert last_returns(model, 50) >= 0.5


def test_sac_learns_pendulum():
    env = make_vec_env("Pendulum-v1", 4, seed=0, num_processes=0)
    model = SAC(
        "MlpPolicy",
        env,
        learning_starts=400,
        gradient_steps=2,
        learning_rate=2e-3,
        batch_size=128,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        device="cpu",
    )
    model.learn(1_600)
    early = last_returns(model, 8)
    model.learn(6_400, reset_num_timesteps=False)
    env.close()
    assert last_returns(model, 8) > early + 300
