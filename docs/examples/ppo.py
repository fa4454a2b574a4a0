"""PPO on CartPole in one file: a collector, generalized advantages, the clipped loss, and evaluation by requests.

python docs/examples/ppo.py [--frames 100000] [--seed 0] [--plot ppo.png]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import CategoricalActor, Collector, ExplorationType, SerialEnv, SyncDataCollector

N_ENVS, N_STEPS = 8, 32
EPOCHS, MINIBATCH = 20, 256
GAMMA, LAMBDA, CLIP, LEARNING_RATE = 0.98, 0.8, 0.2, 1e-3


def net(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


def advantages(batch: TensorDictBase, critic: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Return generalized advantages and the returns that the critic learns, both ``[n, T]``."""
    with torch.no_grad():
        value, following = critic(batch["observation"]).squeeze(-1), critic(batch["next", "observation"]).squeeze(-1)
    reward, done, terminated = (batch["next", key].squeeze(-1) for key in ("reward", "done", "terminated"))
    delta = reward + GAMMA * following * ~terminated - value
    advantage, running = torch.zeros_like(delta), torch.zeros(len(delta))
    for t in reversed(range(delta.shape[1])):
        running = delta[:, t] + GAMMA * LAMBDA * running * ~done[:, t]
        advantage[:, t] = running
    return advantage, advantage + value


def train(frames: int, seed: int, evaluate_every: int = 10) -> Iterator[tuple[int, float, float]]:
    """Train; yield ``(frames, seconds without evaluation, mean return of 10 episodes)`` after some batches."""
    torch.manual_seed(seed)
    actor, critic = CategoricalActor(net(2)), TensorDictModule(net(1), ["observation"], ["value"])
    optimiser = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=LEARNING_RATE)
    collector = SyncDataCollector(
        SerialEnv(N_ENVS, "gym:CartPole-v1"),
        actor,
        frames_per_batch=N_ENVS * N_STEPS,
        total_frames=frames // (N_ENVS * N_STEPS) * N_ENVS * N_STEPS,
        seed=seed,
    )
    evaluator = Collector(
        SerialEnv(10, "gym:CartPole-v1"), actor, exploration_type=ExplorationType.DETERMINISTIC, seed=seed + 1000
    )
    seconds = 0.0
    with collector, evaluator:
        for number, batch in enumerate(collector, 1):
            start = time.perf_counter()
            remaining = 1.0 - collector.stats()["frames"] / frames
            optimiser.param_groups[0]["lr"] = LEARNING_RATE * max(remaining, 0.0)
            advantage, returns = advantages(batch, critic.module)
            data = batch.reshape(-1)
            advantage, returns = advantage.reshape(-1), returns.reshape(-1)
            for _ in range(EPOCHS):
                for rows in torch.randperm(len(data)).split(MINIBATCH):
                    minibatch, normalized = data[rows], advantage[rows]
                    normalized = (normalized - normalized.mean()) / (normalized.std() + 1e-8)
                    ratio = (actor.log_prob(minibatch) - minibatch["action_log_prob"]).exp()
                    clip = CLIP * max(remaining, 0.0)
                    loss = -torch.min(ratio * normalized, ratio.clamp(1 - clip, 1 + clip) * normalized).mean()
                    loss = (
                        loss
                        + 0.5 * (critic.module(minibatch["observation"]).squeeze(-1) - returns[rows]).square().mean()
                    )
                    optimiser.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
                    optimiser.step()
            seconds += time.perf_counter() - start
            if number % evaluate_every == 0:
                evaluator.execute(n_episodes=10)
                result = evaluator.get()
                assert result is not None
                elapsed = collector.stats()["seconds"] + seconds
                yield int(collector.stats()["frames"]), elapsed, float(result.episode_return().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="file for a plot of the learning curve")
    args = parser.parse_args()
    curve = []
    for frames, seconds, mean_return in train(args.frames, args.seed):
        curve.append((frames, mean_return))
        print(f"{frames:>8} frames  {seconds:7.1f} s  mean return {mean_return:6.1f}", flush=True)
    if args.plot:
        import matplotlib.pyplot as plt

        plt.plot(*zip(*curve, strict=True))
        plt.xlabel("frames")
        plt.ylabel("mean return of 10 episodes")
        plt.savefig(args.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
