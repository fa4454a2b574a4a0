"""PPO in one file: a collector, generalized advantages, the clipped loss, and evaluation by requests.

python docs/examples/ppo.py [--env gym:CartPole-v1] [--frames N] [--seed 0] [--plot ppo.png] [--save ppo.pt]

CartPole reaches 500 within 100,000 frames. `--env gym:HalfCheetah-v5` reaches about 1,500 within 500,000 frames.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from rich.progress import Progress
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

import steppe
from steppe import (
    CategoricalActor,
    Compose,
    Composite,
    DoubleToFloat,
    EnvBase,
    NormalActor,
    SerialEnv,
    TransformedEnv,
    VecNorm,
    evaluate,
    gae,
    make_env,
)

COLLECTOR = steppe.SyncDataCollector  # steppe.RayCollector collects in an actor of a Ray cluster


class Settings(NamedTuple):
    """Settings for one environment; each batch has ``n_envs * n_steps`` frames."""

    frames: int
    n_envs: int
    n_steps: int
    epochs: int
    minibatch: int
    gamma: float
    lambda_: float
    learning_rate: float
    normalize: bool


SETTINGS = {
    "gym:CartPole-v1": Settings(100_000, 8, 128, 10, 256, 0.99, 0.95, 1e-3, normalize=False),
    "gym:LunarLander-v3": Settings(300_000, 16, 128, 10, 64, 0.99, 0.95, 5e-4, normalize=False),
    "gym:HalfCheetah-v5": Settings(500_000, 8, 256, 10, 64, 0.99, 0.95, 3e-4, normalize=True),
}
CLIP = 0.2


def net(inputs: int, outputs: int) -> nn.Sequential:
    """Return a net of 2x64 whose last layer begins small, so that the first actions are drawn almost uniformly."""
    layers = [nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, 2**0.5 if layer is not layers[-1] else 0.01)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


class MeanAndScale(nn.Module):
    """The parameters of a normal distribution, whose deviation does not depend on the observation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.net, self.log_scale = net(inputs, outputs), nn.Parameter(torch.zeros(outputs))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loc = self.net(observation)
        return loc, self.log_scale.exp().expand_as(loc)


def make_actor(specs: Composite) -> CategoricalActor | NormalActor:
    """Return the actor for the observations and actions of an environment."""
    inputs, action = specs["observation"].shape[-1], specs["action"]
    if action.choice_form is not None:
        return CategoricalActor(net(inputs, action.space.n))
    module = TensorDictModule(MeanAndScale(inputs, action.shape[-1]), ["observation"], ["loc", "scale"])
    return NormalActor(module)


def make_envs(name: str, n: int, norm: VecNorm | None) -> EnvBase:
    """Return a batch of environments, in this process because their steps are short."""
    batch = SerialEnv(n, name)
    return batch if norm is None else TransformedEnv(batch, Compose(DoubleToFloat(), norm))


def train(
    frames: int, seed: int, evaluate_every: int = 10, name: str = "gym:CartPole-v1", save: str | None = None
) -> Iterator[tuple[int, float, float]]:
    """Train; yield ``(frames, seconds without evaluation, mean return of 10 episodes)`` after some batches."""
    settings = SETTINGS[name]
    torch.set_num_threads(1)  # small nets gain nothing from more
    torch.manual_seed(seed)
    with make_env(name) as env:
        specs = Composite(observation=env.observation_spec["observation"], action=env.action_spec)
    actor, critic = make_actor(specs), net(specs["observation"].shape[-1], 1)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=settings.learning_rate, eps=1e-5)
    norm = VecNorm(["observation"], decay=1.0) if settings.normalize else None
    size = settings.n_envs * settings.n_steps
    env = make_envs(name, settings.n_envs, norm)
    collector = COLLECTOR(env, actor, frames_per_batch=size, total_frames=frames // size * size, seed=seed)
    seconds = 0.0
    with collector:
        for number, batch in enumerate(collector, 1):
            start = time.perf_counter()
            remaining = max(1.0 - collector.stats()["frames"] / frames, 0.0)
            optimiser.param_groups[0]["lr"] = settings.learning_rate * remaining
            with torch.no_grad():
                value, next_value = critic(batch["observation"]), critic(batch["next", "observation"])
            advantage, returns = gae(batch, value, next_value, gamma=settings.gamma, lambda_=settings.lambda_)
            batch["advantage"], batch["returns"] = advantage.squeeze(-1), returns.squeeze(-1)
            data = batch.reshape(-1)
            for _ in range(settings.epochs):
                for rows in torch.randperm(len(data)).split(settings.minibatch):
                    loss = ppo_loss(actor, critic, data[rows], CLIP * (0.5 + 0.5 * remaining))
                    optimiser.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(parameters, 0.5)
                    optimiser.step()
            collector.update_policy_weights_()
            seconds += time.perf_counter() - start
            if number % evaluate_every == 0:
                if save:
                    torch.save({"actor": actor.state_dict(), "norm": norm and norm.state_dict()}, save)
                elapsed = collector.stats()["seconds"] + seconds
                yield int(collector.stats()["frames"]), elapsed, mean_return(name, actor, norm, seed + 1000)


def mean_return(name: str, actor: nn.Module, norm: VecNorm | None, seed: int) -> float:
    """Return the mean return of 10 episodes with the most probable actions."""
    frozen = None if norm is None else norm.frozen_copy()
    return evaluate(actor, lambda: make_envs(name, 10, frozen), 10, seed=seed).mean


def ppo_loss(actor: nn.Module, critic: nn.Module, data: TensorDictBase, clip: float) -> torch.Tensor:
    """Return the clipped loss of a minibatch (Schulman et al. 2017)."""
    advantage = data["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    ratio = (actor.log_prob(data) - data["action_log_prob"]).exp()
    policy = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
    return policy + 0.5 * (critic(data["observation"]).squeeze(-1) - data["returns"]).square().mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="gym:CartPole-v1", choices=sorted(SETTINGS))
    parser.add_argument("--frames", type=int, help="default: that of SETTINGS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="file for a plot of the learning curve")
    parser.add_argument("--save", help="file for the weights, written at each evaluation")
    args = parser.parse_args()
    frames = args.frames or SETTINGS[args.env].frames
    curve = []
    with Progress() as progress:
        task = progress.add_task("train", total=frames)
        for done, seconds, mean_return in train(frames, args.seed, name=args.env, save=args.save):
            curve.append((done, mean_return))
            progress.update(task, completed=done)
            progress.console.print(f"{done:>8} frames  {seconds:7.1f} s  mean return {mean_return:7.1f}")
    if args.plot:
        import matplotlib.pyplot as plt

        plt.plot(*zip(*curve, strict=True))
        plt.gca().set(xlabel="frames", ylabel="mean return of 10 episodes")
        plt.savefig(args.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
