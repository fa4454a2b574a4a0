"""DQN on CartPole in one file: workers fill a replay buffer, and double Q-learning with n-step returns samples it.

python docs/examples/dqn.py [--frames 50000] [--seed 0] [--n-step 3] [--prioritized] [--save dqn.pt]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import one_hot, smooth_l1_loss

from steppe import LazyTensorStorage, MultiaSyncDataCollector, PrioritizedSampler, RandomSampler, TensorDictReplayBuffer
from steppe import make_env as make
from steppe.transforms import MultiStepTransform

CARTPOLE = "gym:CartPole-v1"
N_WORKERS, N_STEPS, UPDATES, BATCH = 2, 128, 64, 128
GAMMA, LEARNING_RATE, TAU, CAPACITY = 0.99, 1e-3, 0.01, 50_000
RANDOM_FRAMES, EPSILON, EXPLORATION = 1_000, 0.05, 0.2


class EpsilonGreedy(nn.Module):
    """The best action of a net, or with probability ``epsilon`` a random one."""

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q, self.epsilon = q, 1.0

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        best = self.q(observation).argmax(-1)
        explore = torch.rand(best.shape) < self.epsilon
        return one_hot(torch.where(explore, torch.randint(2, best.shape), best), 2)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


def evaluate(policy: EpsilonGreedy, episodes: int, seed: int) -> float:
    """Return the mean return of episodes with the best actions."""
    policy = copy.deepcopy(policy)
    policy.epsilon = 0.0
    with make(CARTPOLE) as env, torch.no_grad():
        env.set_seed(seed)
        return sum(float(env.rollout(500, policy)["next", "reward"].sum()) for _ in range(episodes)) / episodes


def train(
    frames: int, seed: int, n: int = 3, prioritized: bool = False, evaluate_every: int = 40, save: str | None = None
) -> Iterator[tuple[int, float]]:
    """Train; yield ``(frames, mean return of 10 episodes)`` after some batches."""
    torch.set_num_threads(1)  # small nets gain nothing from more, and workers need the cores
    torch.manual_seed(seed)
    policy = EpsilonGreedy(net())
    target = copy.deepcopy(policy.q)
    optimiser = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    sampler = PrioritizedSampler(CAPACITY, alpha=0.6, beta=0.4) if prioritized else RandomSampler()
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY), sampler=sampler, batch_size=BATCH, transform=MultiStepTransform(n, GAMMA)
    )
    collector = MultiaSyncDataCollector(
        [CARTPOLE] * N_WORKERS,
        policy,
        frames_per_batch=N_STEPS,
        total_frames=frames // N_STEPS * N_STEPS,
        init_random_frames=RANDOM_FRAMES,
        replay_buffer=buffer,
        seed=seed,
    )
    with collector:
        for number, _ in enumerate(collector, 1):
            if buffer.write_count < RANDOM_FRAMES:
                continue
            for _ in range(UPDATES):
                batch = buffer.sample()
                # "next" is what came after n steps, or after those up to the end of the episode.
                after, reward, terminated = (batch["next", key] for key in ("observation", "reward", "terminated"))
                with torch.no_grad():
                    best = policy.q(after).argmax(-1, keepdim=True)
                    later = target(after).gather(-1, best).squeeze(-1)
                    goal = reward.squeeze(-1) + batch["gamma"] * later * ~terminated.squeeze(-1)
                value = (policy.q(batch["observation"]) * batch["action"]).sum(-1)
                weight = batch["priority_weight"] if prioritized else 1.0
                loss = (weight * smooth_l1_loss(value, goal, reduction="none")).mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
                optimiser.step()
                if prioritized:
                    buffer.update_priority(batch["index"], (value - goal).detach().abs())
                with torch.no_grad():
                    for old, new in zip(target.parameters(), policy.q.parameters(), strict=True):
                        old.lerp_(new, TAU)
            explored = buffer.write_count / (EXPLORATION * frames)
            collector.update_policy_weights_(attributes={"epsilon": max(EPSILON, 1.0 - explored)})
            if number % evaluate_every == 0:
                if save:
                    torch.save(policy.state_dict(), save)
                yield buffer.write_count, evaluate(policy, 10, seed + 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-step", type=int, default=3)
    parser.add_argument("--prioritized", action="store_true")
    parser.add_argument("--save", help="file for the weights, written at each evaluation")
    args = parser.parse_args()
    for frames, mean_return in train(args.frames, args.seed, args.n_step, args.prioritized, save=args.save):
        print(f"{frames:>8} frames  mean return {mean_return:6.1f}", flush=True)


if __name__ == "__main__":
    main()
