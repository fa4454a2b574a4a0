"""Train Stable-Baselines3 with the settings of docs/examples, for the learning curves of tools/learning_curves.py.

Each function takes the program of the example, which has the settings, and yields ``(frames, mean return)`` of
deterministic episodes as its ``train`` does. What Stable-Baselines3 does not have is left out: DQN learns without the
second net that chooses the best action (double DQN), and RecurrentPPO has an LSTM for our GRU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, TransformObservation, TransformReward
from sb3_contrib import RecurrentPPO
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch import nn


class Record(BaseCallback):
    """Evaluate after each ``every`` frames, and report the result at once."""

    def __init__(self, every: int, evaluate: Callable[[BaseAlgorithm], float], report: Callable[..., None]) -> None:
        super().__init__()
        self.every, self.evaluate, self.report, self.due = every, evaluate, report, every

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:  # the updates for all frames so far are done
        if self.num_timesteps >= self.due:
            self.due += self.every
            self.report(self.num_timesteps, self.evaluate(self.model))


def learn(
    model: BaseAlgorithm, frames: int, every: int, envs: VecEnv, episodes: int, report: Callable[[int, float], None]
) -> None:
    """Train for a number of frames; report ``(frames, mean return)`` of one episode in each of ``envs``."""

    def evaluate(model: BaseAlgorithm) -> float:
        if isinstance(envs, VecNormalize):
            envs.obs_rms = model.get_vec_normalize_env().obs_rms
        return float(evaluate_policy(model, envs, episodes, deterministic=True)[0])

    record = Record(every, evaluate, report)
    model.learn(frames, callback=record)
    if model.num_timesteps >= record.due:
        report(model.num_timesteps, evaluate(model))


def vector(make: Callable[[], gymnasium.Env], n: int, seed: int) -> DummyVecEnv:
    envs = DummyVecEnv([lambda: Monitor(make())] * n)
    envs.seed(seed)
    return envs


def ppo(example: ModuleType, name: str, frames: int, seed: int, every: int, report: Callable[..., None]) -> None:
    settings = example.SETTINGS[name]
    make = partial(gymnasium.make, name.removeprefix("gym:"))
    train, test = vector(make, settings.n_envs, seed), vector(make, 10, seed + 1000)
    if settings.normalize:
        train = VecNormalize(train, norm_reward=False, clip_obs=float("inf"))
        test = VecNormalize(test, norm_reward=False, clip_obs=float("inf"), training=False)
    size = settings.n_envs * settings.n_steps
    model = PPO(
        "MlpPolicy",
        train,
        learning_rate=lambda remaining: settings.learning_rate * remaining,
        clip_range=lambda remaining: example.CLIP * (0.5 + 0.5 * remaining),
        n_steps=settings.n_steps,
        batch_size=settings.minibatch,
        n_epochs=settings.epochs,
        gamma=settings.gamma,
        gae_lambda=settings.lambda_,
        seed=seed,
        device="cpu",
    )
    learn(model, frames // size * size, every * size, test, 10, report)


def ppo_recurrent(example: ModuleType, name: str, frames: int, seed: int, every: int, report: Any) -> None:
    def make(scale: float) -> gymnasium.Env:
        env = gymnasium.make("CartPole-v1")
        space = gymnasium.spaces.Box(-float("inf"), float("inf"), (2,))
        hidden = TransformObservation(env, lambda observation: observation[[0, 2]], space)
        return TransformReward(hidden, lambda reward: scale * reward)

    train = vector(partial(make, example.REWARD_SCALE), example.N_ENVS, seed)
    size = example.N_ENVS * example.N_STEPS
    model = RecurrentPPO(
        "MlpLstmPolicy",
        train,
        learning_rate=lambda remaining: example.LEARNING_RATE * remaining,
        clip_range=example.CLIP,
        n_steps=example.N_STEPS,
        batch_size=example.ENVS_OF_MINIBATCH * example.N_STEPS,
        n_epochs=example.EPOCHS,
        gamma=example.GAMMA,
        gae_lambda=example.LAMBDA,
        policy_kwargs={
            "lstm_hidden_size": example.SIZE,
            "net_arch": [],
            "shared_lstm": True,
            "enable_critic_lstm": False,
        },
        seed=seed,
        device="cpu",
    )
    learn(model, frames // size * size, every * size, vector(partial(make, 1.0), 10, seed + 1000), 10, report)


class Features(BaseFeaturesExtractor):
    """The example's net for screens up to its last hidden layer; the policy divides by 255 and adds the last layer."""

    def __init__(self, space: gymnasium.Space, net: Callable[..., nn.Sequential]) -> None:
        layers = net(space.shape, 1)[1:-1]
        super().__init__(space, layers[-2].out_features)
        self.layers = layers

    def forward(self, screens: torch.Tensor) -> torch.Tensor:
        return self.layers(screens)


def dqn(example: ModuleType, name: str, frames: int, seed: int, every: int, report: Callable[..., None]) -> None:
    settings = example.SETTINGS[name]
    make: Callable[..., gymnasium.Env] = partial(gymnasium.make, name.removeprefix("gym:"))
    policy, kwargs, learning = "MlpPolicy", {"net_arch": [128, 128]}, make
    if "ALE/" in name:
        make = partial(atari, name.removeprefix("gym:"), example.SCREEN)
        features = {"features_extractor_class": Features, "features_extractor_kwargs": {"net": example.net}}
        policy, kwargs, learning = "CnnPolicy", {"net_arch": [], **features}, partial(make, learn=True)
    interval = settings.n_steps // settings.updates  # frames for one update of both nets
    model = DQN(
        policy,
        vector(learning, settings.n_workers, seed),
        learning_rate=settings.learning_rate,
        buffer_size=example.CAPACITY,
        learning_starts=example.RANDOM_FRAMES,
        batch_size=settings.batch,
        tau=example.TAU,
        gamma=example.GAMMA,
        n_steps=3,  # as in train() of the example
        train_freq=interval // settings.n_workers,
        gradient_steps=1,
        target_update_interval=interval,
        exploration_fraction=settings.exploration,
        exploration_final_eps=example.EPSILON,
        policy_kwargs=kwargs,
        seed=seed,
        device="cpu",
    )
    frames = frames // settings.n_steps * settings.n_steps
    test = vector(make, settings.episodes, seed + 1000)
    learn(model, frames, every * settings.n_steps, test, settings.episodes, report)


def atari(name: str, screen: int, learn: bool = False) -> gymnasium.Env:
    import ale_py

    gymnasium.register_envs(ale_py)
    game = gymnasium.make(name, frameskip=1, repeat_action_probability=0.0)
    env = FrameStackObservation(AtariPreprocessing(game, screen_size=screen), 4)
    return TransformReward(env, np.sign) if learn else env


def sac(example: ModuleType, name: str, frames: int, seed: int, every: int, report: Callable[..., None]) -> None:
    make = partial(gymnasium.make, name.removeprefix("gym:"))
    model = SAC(
        "MlpPolicy",
        vector(make, 1, seed),
        learning_rate=example.LEARNING_RATE,
        buffer_size=example.CAPACITY,
        learning_starts=example.RANDOM_FRAMES,
        batch_size=example.BATCH,
        tau=example.TAU,
        gamma=example.GAMMA,
        policy_kwargs={"net_arch": [example.HIDDEN, example.HIDDEN]},
        seed=seed,
        device="cpu",
    )
    learn(model, frames, every, vector(make, 10, seed + 1000), 10, report)
