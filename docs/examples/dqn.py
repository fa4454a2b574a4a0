"""DQN in one file: workers fill a replay buffer, and double Q-learning with n-step returns samples it.

python docs/examples/dqn.py [--env gym:CartPole-v1] [--frames N] [--seed 0] [--n-step 3] [--prioritized]
                            [--plot dqn.png] [--save dqn.pt]

CartPole reaches 500 within 50,000 frames. `--env gym:ALE/Qbert-v5` learns from small screens.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
from rich.progress import Progress
from tensordict.nn import TensorDictModule
from torch import nn
from torch.nn.functional import one_hot, smooth_l1_loss

from steppe import (
    EnvBase,
    ExplorationType,
    LazyTensorStorage,
    MultiAsyncCollector,
    MultiStepTransform,
    PrioritizedSampler,
    RandomSampler,
    SerialEnv,
    SignTransform,
    TensorDictReplayBuffer,
    TransformedEnv,
    atari_preprocessing,
    evaluate,
    exploration_type,
    make_env,
)


class Settings(NamedTuple):
    """Settings for one environment; each of ``n_workers`` collects ``n_steps`` frames, then ``updates`` follow."""

    frames: int
    n_workers: int
    n_steps: int
    updates: int
    batch: int
    learning_rate: float
    exploration: float
    evaluate_every: int
    episodes: int


SETTINGS = {
    "gym:CartPole-v1": Settings(50_000, 2, 128, 64, 128, 1e-3, 0.2, 40, 10),
    "gym:ALE/Qbert-v5": Settings(51_200, 1, 128, 64, 32, 2.5e-4, 0.1, 50, 10),
}
GAMMA, TAU, CAPACITY, RANDOM_FRAMES, EPSILON, SCREEN = 0.99, 0.01, 50_000, 1_000, 0.05, 42


def make(name: str, learn: bool = False) -> EnvBase:
    """Return one environment; a game shows its last four screens, small, and ``learn`` keeps the signs of rewards."""
    if "ALE/" not in name:
        return make_env(name)
    game = make_env(name, frameskip=1, repeat_action_probability=0.0)
    env = TransformedEnv(game, atari_preprocessing(screen_size=SCREEN))
    return TransformedEnv(env, SignTransform(["reward"])) if learn else env


class Scale(nn.Module):
    def forward(self, screens: torch.Tensor) -> torch.Tensor:
        return screens / 255


def net(shape: torch.Size, n_actions: int) -> nn.Module:
    """Return a net that maps observations of a shape to the values of the actions."""
    if len(shape) == 3:
        screens = [Scale(), nn.Conv2d(shape[0], 16, 8, stride=4), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2), nn.ReLU()]
        layers = [*screens, nn.Flatten(-3), nn.Linear(32 * 3 * 3, 256), nn.ReLU(), nn.Linear(256, n_actions)]
    else:
        layers = [nn.Linear(shape[-1], 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, n_actions)]
    return nn.Sequential(*layers)


class EpsilonGreedy(nn.Module):
    """The best action of a net, or with probability ``epsilon`` a random one."""

    def __init__(self, q: nn.Module) -> None:
        super().__init__()
        self.q, self.epsilon = q, 1.0

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        values = self.q(observation)
        action, n_actions = values.argmax(-1), values.shape[-1]
        if exploration_type() == ExplorationType.RANDOM:
            explore = torch.rand(action.shape) < self.epsilon
            action = torch.where(explore, torch.randint(n_actions, action.shape), action)
        return one_hot(action, n_actions)


def train(
    frames: int,
    seed: int,
    n: int = 3,
    prioritized: bool = False,
    evaluate_every: int | None = None,
    name: str = "gym:CartPole-v1",
    save: str | None = None,
) -> Iterator[tuple[int, float]]:
    """Train; yield ``(frames, mean return of some episodes)`` after some batches."""
    settings = SETTINGS[name]
    torch.set_num_threads(1)  # small nets gain nothing from more, and workers need the cores
    torch.manual_seed(seed)
    with make(name) as env:
        observation = "pixels" if "pixels" in env.observation_spec else "observation"
        greedy = EpsilonGreedy(net(env.observation_spec[observation].shape, env.action_spec.space.n))
    q, policy = greedy.q, TensorDictModule(greedy, [observation], ["action"])
    target = copy.deepcopy(q)
    optimiser = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate)
    sampler = PrioritizedSampler(CAPACITY, alpha=0.6, beta=0.4) if prioritized else RandomSampler()
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY),
        sampler=sampler,
        batch_size=settings.batch,
        transform=MultiStepTransform(n, GAMMA),
    )
    collector = MultiAsyncCollector(
        [partial(make, name, learn=True)] * settings.n_workers,
        policy,
        frames_per_batch=settings.n_steps,
        total_frames=frames // settings.n_steps * settings.n_steps,
        init_random_frames=RANDOM_FRAMES,
        replay_buffer=buffer,
        seed=seed,
    )
    with collector:
        for number, _ in enumerate(collector, 1):
            if buffer.write_count < RANDOM_FRAMES:
                continue
            for _ in range(settings.updates):
                batch = buffer.sample()
                # "next" is what came after n steps, or after those up to the end of the episode.
                after, reward, terminated = (batch["next", key] for key in (observation, "reward", "terminated"))
                with torch.no_grad():
                    best = q(after).argmax(-1, keepdim=True)
                    later = target(after).gather(-1, best).squeeze(-1)
                    goal = reward.squeeze(-1) + batch["gamma"] * later * ~terminated.squeeze(-1)
                value = (q(batch[observation]) * batch["action"]).sum(-1)
                weight = batch["priority_weight"] if prioritized else 1.0
                loss = (weight * smooth_l1_loss(value, goal, reduction="none")).mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
                optimiser.step()
                if prioritized:
                    buffer.update_priority(batch["index"], (value - goal).detach().abs())
                with torch.no_grad():
                    for old, new in zip(target.parameters(), q.parameters(), strict=True):
                        old.lerp_(new, TAU)
            epsilon = max(EPSILON, 1.0 - buffer.write_count / (settings.exploration * frames))
            collector.update_policy_weights_(attributes={"module.epsilon": epsilon})
            if number % (evaluate_every or settings.evaluate_every) == 0:
                if save:
                    torch.save(greedy.state_dict(), save)
                envs = partial(SerialEnv, settings.episodes, partial(make, name))
                yield buffer.write_count, evaluate(policy, envs, settings.episodes, seed=seed + 1000).mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="gym:CartPole-v1", choices=sorted(SETTINGS))
    parser.add_argument("--frames", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-step", type=int, default=3)
    parser.add_argument("--prioritized", action="store_true")
    parser.add_argument("--plot", help="file for a plot of the learning curve")
    parser.add_argument("--save", help="file for the weights, written at each evaluation")
    args = parser.parse_args()
    total = args.frames or SETTINGS[args.env].frames
    curve = []
    with Progress() as progress:
        task = progress.add_task("train", total=total)
        points = train(total, args.seed, args.n_step, args.prioritized, name=args.env, save=args.save)
        for frames, mean_return in points:
            curve.append((frames, mean_return))
            progress.update(task, completed=frames)
            progress.console.print(f"{frames:>8} frames  mean return {mean_return:6.1f}")
    if args.plot:
        import matplotlib.pyplot as plt

        plt.plot(*zip(*curve, strict=True))
        plt.gca().set(xlabel="frames", ylabel="mean return")
        plt.savefig(args.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
