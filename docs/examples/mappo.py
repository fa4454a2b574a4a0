"""MAPPO in one file: a team with one shared policy, and a critic that sees the observations of all.

python docs/examples/mappo.py [--env vmas:balance] [--frames N] [--seed 0] [--plot mappo.png] [--save mappo.pt]

`vmas:balance` has continuous actions and steps all its environments at once. `pettingzoo:mpe2/simple_spread_v3` has
discrete actions, and a mask of the agents that are there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from rich.progress import Progress
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import (
    CategoricalActor,
    EnvBase,
    NormalActor,
    RewardSum,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    TransformedEnv,
    gae,
    make_env,
)

FRAMES = {"vmas:balance": 240_000, "vmas:navigation": 240_000, "pettingzoo:mpe2/simple_spread_v3": 200_000}
EPOCHS, MINIBATCHES, GAMMA, LAMBDA, CLIP, LEARNING_RATE = 10, 8, 0.99, 0.9, 0.2, 5e-4


def make_envs(name: str) -> EnvBase:
    """Return a batch of environments whose episodes last at most 100 steps (25 in simple_spread)."""
    if name.startswith("vmas:"):
        batch = TransformedEnv(make_env(name, num_envs=60, n_agents=3, clamp_actions=True), StepCounter(max_steps=100))
    else:
        batch = SerialEnv(16, name)
    return TransformedEnv(batch, RewardSum())


def net(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))


class MeanAndScale(nn.Module):
    """The parameters of a normal distribution, whose deviation does not depend on the observation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.net, self.log_scale = net(inputs, outputs), nn.Parameter(torch.zeros(outputs))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loc = self.net(observation)
        return loc, self.log_scale.exp().expand_as(loc)


def make_actor(env: EnvBase, group: str) -> CategoricalActor | NormalActor:
    """Return the policy that all agents of a group share."""
    inputs, action = env.observation_spec[group, "observation"].shape[-1], env.full_action_spec[group, "action"]
    keys = {"out_keys": [(group, "action")], "log_prob_key": (group, "action_log_prob")}
    if action.choice_form is not None:
        one_hot = action.choice_form == "one_hot"
        return CategoricalActor(net(inputs, action.space.n), [(group, "observation")], one_hot=one_hot, **keys)
    parameters = [(group, "loc"), (group, "scale")]
    module = TensorDictModule(MeanAndScale(inputs, action.shape[-1]), [(group, "observation")], parameters)
    return NormalActor(module, in_keys=parameters, **keys)


class Critic(nn.Module):
    """The value of the observations of all agents, the same for each: ``[..., agents, k]`` to ``[...]``."""

    def __init__(self, agents: int, inputs: int) -> None:
        super().__init__()
        self.net = net(agents * inputs, 1)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.net(observation.flatten(-2)).squeeze(-1)


def add_advantages(batch: TensorDictBase, critic: nn.Module, group: str) -> None:
    """Write advantages and returns of the team ``[n, T]``: its reward is the mean over the agents that are there."""
    mask = batch.get((group, "mask"), None)
    reward = batch["next", group, "reward"].squeeze(-1)
    weight = torch.ones_like(reward) if mask is None else mask.to(reward.dtype)
    reward = (reward * weight).sum(-1) / weight.sum(-1).clamp(min=1)
    with torch.no_grad():
        value, following = critic(batch[group, "observation"]), critic(batch["next", group, "observation"])
    advantage, batch["returns"] = gae(batch, value, following, gamma=GAMMA, lambda_=LAMBDA, reward=reward)
    batch["advantage"] = (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def loss_of(actor: nn.Module, critic: nn.Module, data: TensorDictBase, group: str) -> torch.Tensor:
    """Return the clipped loss of the agents that are there, and of the critic."""
    mask = data.get((group, "mask"), None)
    ratio = (actor.log_prob(data) - data[group, "action_log_prob"]).exp()  # [rows, agents]
    advantage = data["advantage"][:, None]
    gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    gain = gain.mean() if mask is None else gain[mask].mean()
    return 0.5 * (critic(data[group, "observation"]) - data["returns"]).square().mean() - gain


def train(frames: int, seed: int, name: str = "vmas:balance", save: str | None = None) -> Iterator[tuple[int, float]]:
    """Train; yield ``(frames, mean return of an agent in the episodes that ended)`` after each batch with ends."""
    torch.set_num_threads(1)  # small nets gain nothing from more
    torch.manual_seed(seed)
    env = make_envs(name)
    group = env.action_key[0]
    size = env.batch_size[0] * 100
    shape = env.observation_spec[group, "observation"].shape
    actor, critic = make_actor(env, group), Critic(*shape[-2:])
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE, eps=1e-5)
    total = frames // size * size
    with SyncDataCollector(env, actor, frames_per_batch=size, total_frames=total, seed=seed) as collector:
        for number, batch in enumerate(collector, 1):
            optimiser.param_groups[0]["lr"] = LEARNING_RATE * max(1 - number * size / frames, 0.0)
            add_advantages(batch, critic, group)
            data = batch.reshape(-1)
            for _ in range(EPOCHS):
                for rows in torch.randperm(len(data)).chunk(MINIBATCHES):
                    optimiser.zero_grad()
                    loss_of(actor, critic, data[rows], group).backward()
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                    optimiser.step()
            ended = batch["next", "done"].squeeze(-1)
            if ended.any():
                if save:
                    torch.save(actor.state_dict(), save)
                yield number * size, float(batch["next", group, "episode_reward"][ended].mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="vmas:balance", choices=sorted(FRAMES))
    parser.add_argument("--frames", type=int, help="default: that of FRAMES")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="file for a plot of the learning curve")
    parser.add_argument("--save", help="file for the weights of the actor, written with each printed return")
    args = parser.parse_args()
    frames = args.frames or FRAMES[args.env]
    curve = []
    with Progress() as progress:
        task = progress.add_task("train", total=frames)
        for done, mean_return in train(frames, args.seed, args.env, args.save):
            curve.append((done, mean_return))
            progress.update(task, completed=done)
            progress.console.print(f"{done:>8} frames  mean return {mean_return:7.2f}")
    if args.plot:
        import matplotlib.pyplot as plt

        plt.plot(*zip(*curve, strict=True))
        plt.xlabel("frames")
        plt.ylabel("mean return of an agent")
        plt.savefig(args.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
