"""PPO in one file on gymnasium's vector API. Only the line that makes the environments knows who steps them.

python docs/examples/ppo_vector.py [--vector gymnasium|steppe] [--id CartPole-v1] [--frames 100000] [--seed 0]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

N_ENVS, N_STEPS = 8, 128
EPOCHS, MINIBATCHES = 4, 4
GAMMA, LAMBDA, CLIP, LEARNING_RATE = 0.99, 0.95, 0.2, 2.5e-4


def make_envs(vector: str, id: str) -> gymnasium.vector.VectorEnv:
    if vector == "steppe":
        from steppe_gym import make_vec

        return make_vec(id, N_ENVS)
    return gymnasium.make_vec(id, N_ENVS, vectorization_mode="sync")


class Agent(nn.Module):
    """A policy and a value function of two hidden layers each."""

    def __init__(self, n_inputs: int, n_actions: int) -> None:
        super().__init__()
        self.actor, self.critic = self._net(n_inputs, n_actions, 0.01), self._net(n_inputs, 1, 1.0)

    @staticmethod
    def _net(n_inputs: int, n_outputs: int, scale: float) -> nn.Sequential:
        layers = [nn.Linear(n_inputs, 64), nn.Linear(64, 64), nn.Linear(64, n_outputs)]
        for layer, gain in zip(layers, (2**0.5, 2**0.5, scale), strict=True):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.critic(observation).squeeze(-1)
        return result

    def policy(self, observation: torch.Tensor) -> Categorical:
        return Categorical(logits=self.actor(observation))


def advantages(
    agent: Agent, rewards: torch.Tensor, values: torch.Tensor, ends: torch.Tensor, last: torch.Tensor, ended: Any
) -> torch.Tensor:
    """Return generalized advantages ``[T, n]``; ``ends[t]`` says whether an episode had ended before step t."""
    with torch.no_grad():
        following, alive = agent.value(last), 1.0 - torch.as_tensor(ended, dtype=torch.float32)
    result, running = torch.zeros_like(rewards), torch.zeros(N_ENVS)
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + GAMMA * following * alive - values[t]
        result[t] = running = delta + GAMMA * LAMBDA * alive * running
        following, alive = values[t], 1.0 - ends[t]
    return result


def train(envs: gymnasium.vector.VectorEnv, frames: int, seed: int) -> Iterator[tuple[int, list[float]]]:
    """Train; yield ``(frames, returns of the episodes that have ended)`` after each batch."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    envs = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    shape = envs.single_observation_space.shape
    agent = Agent(int(np.prod(shape)), int(envs.single_action_space.n))
    optimiser = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    observations = torch.zeros(N_STEPS, N_ENVS, *shape)
    actions = torch.zeros(N_STEPS, N_ENVS, dtype=torch.int64)
    log_probs, rewards, values, ends = (torch.zeros(N_STEPS, N_ENVS) for _ in range(4))
    observation, _ = envs.reset(seed=seed)
    ended = np.zeros(N_ENVS, bool)
    for update in range(frames // (N_STEPS * N_ENVS)):
        returns: list[float] = []
        for t in range(N_STEPS):
            observations[t], ends[t] = torch.as_tensor(observation), torch.as_tensor(ended)
            with torch.no_grad():
                policy = agent.policy(observations[t])
                actions[t] = policy.sample()
                log_probs[t], values[t] = policy.log_prob(actions[t]), agent.value(observations[t])
            observation, reward, terminated, truncated, infos = envs.step(actions[t].numpy())
            rewards[t], ended = torch.as_tensor(reward), terminated | truncated
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        advantage = advantages(agent, rewards, values, ends, torch.as_tensor(observation), ended)
        data = [part.flatten(0, 1) for part in (observations, actions, log_probs, advantage, advantage + values)]
        keep = (ends == 0).flatten()  # with next-step autoreset, a step after the end of an episode is a reset
        rows = keep.nonzero().squeeze(-1)
        for _ in range(EPOCHS):
            for chosen in rows[torch.randperm(len(rows))].chunk(MINIBATCHES):
                obs, action, old, gain, target = (part[chosen] for part in data)
                policy = agent.policy(obs)
                ratio = (policy.log_prob(action) - old).exp()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                loss = -torch.min(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain).mean()
                loss = loss + 0.5 * (agent.value(obs) - target).square().mean() - 0.01 * policy.entropy().mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()
        yield (update + 1) * N_STEPS * N_ENVS, returns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vector", choices=("gymnasium", "steppe"), default="steppe")
    parser.add_argument("--id", default="CartPole-v1")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    envs = make_envs(args.vector, args.id)
    start = time.perf_counter()
    for frames, returns in train(envs, args.frames, args.seed):
        mean = np.mean(returns) if returns else float("nan")
        speed = frames / (time.perf_counter() - start)
        print(f"{frames:>8} frames  {speed:>7.0f} frames/s  mean return {mean:6.1f}", flush=True)
    envs.close()


if __name__ == "__main__":
    main()
