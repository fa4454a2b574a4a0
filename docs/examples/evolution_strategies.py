"""Evolution strategies over a PolicyBank: a population of networks acts in one request.

python docs/examples/evolution_strategies.py [--frames 400000] [--population 32] [--workers 0] [--seed 0] [--plot FILE]

Each iteration perturbs the parameters in pairs of opposite directions, runs one request for ``[population, episodes]``
whole episodes, and moves along the directions by the ranks of their returns. The networks differ in their parameters
only, so the bank evaluates all of them in one call.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from rich.progress import Progress
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from steppe import Collector, PolicyBank, SerialEnv
from steppe_gym import GymEnv

EPISODES, NOISE, LEARNING_RATE = 2, 0.1, 0.1


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1", categorical_action_encoding=True)


class Greedy(nn.Module):
    """A small network that takes the action with the largest output."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layers(observation).argmax(-1)


def centered_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the ranks of values ``[n]``, from -0.5 to 0.5, so that no single return dominates."""
    ranks = values.argsort().argsort().float()
    return ranks / (len(values) - 1) - 0.5


def train(
    frames: int, seed: int, evaluate_every: int = 1, population: int = 32, workers: int = 0
) -> Iterator[tuple[int, float]]:
    """Evolve; yield ``(frames, mean return of the population)`` after each ``evaluate_every`` frames."""
    torch.set_num_threads(1)  # small nets gain nothing from more
    torch.manual_seed(seed)
    networks = [Greedy() for _ in range(population)]
    bank = PolicyBank({n: TensorDictModule(net, ["observation"], ["action"]) for n, net in enumerate(networks)})
    mean = parameters_to_vector(networks[0].parameters()).detach()
    members = torch.arange(population).unsqueeze(1).expand(population, EPISODES)
    request = TensorDict({"policy_id": members}, [population, EPISODES])
    done, due = 0, evaluate_every
    with Collector(lambda: SerialEnv(population, make_env), bank, num_workers=workers, seed=seed) as collector:
        while done < frames:
            half = torch.randn(population // 2, len(mean))
            directions = torch.cat([half, -half])
            for net, direction in zip(networks, directions, strict=True):
                vector_to_parameters(mean + NOISE * direction, net.parameters())
            collector.update_policy_weights_()
            trajectories = collector.execute(agent_info=request).result()
            returns = trajectories.episode_return().mean(-1)
            step = (centered_ranks(returns).unsqueeze(-1) * directions).mean(0) / NOISE
            mean = mean + LEARNING_RATE * step
            done += int(trajectories.mask().sum())
            if done >= due:
                due = done - done % evaluate_every + evaluate_every
                yield done, float(returns.mean())


def plot(curve: list[tuple[int, float]], file: str) -> None:
    """Draw the returns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    axes.plot(*zip(*curve, strict=True))
    axes.set(xlabel="frames", ylabel="mean return of the population", title="Evolution strategies on CartPole")
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=400_000)
    parser.add_argument("--population", type=int, default=32, help="an even number")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE", help="draw the returns into this file")
    args = parser.parse_args()
    curve = []
    with Progress() as progress:
        task = progress.add_task("evolve", total=args.frames)
        for done, mean_return in train(args.frames, args.seed, population=args.population, workers=args.workers):
            curve.append((done, mean_return))
            progress.update(task, completed=done)
            progress.console.print(f"{done:>8} frames  mean return {mean_return:6.1f}")
    if args.plot:
        plot(curve, args.plot)


if __name__ == "__main__":
    main()
