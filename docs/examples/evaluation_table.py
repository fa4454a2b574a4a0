"""Evaluate three checkpoints on four variants of an environment in one call, as a table and a picture.

python docs/examples/evaluation_table.py [--checkpoints A.pt B.pt C.pt] [--episodes 10] [--seed 0] [--plot FILE]

``agent_info`` selects the checkpoint, ``env_info`` sets CartPole's attribute ``gravity``. ``[3, 1, 1]`` agents and
``[1, 4, 10]`` environments are a request for ``[3, 4, 10]`` episodes. Without ``--checkpoints`` the script imitates a
controller, and takes checkpoints on the way.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import Collector, PolicyBank, SerialEnv
from steppe_gym import GymEnv

GRAVITY = {"Moon": 1.6, "Mars": 3.7, "Earth": 9.8, "Jupiter": 24.8}


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1", categorical_action_encoding=True, env_info_to="attributes")


class Greedy(nn.Module):
    """Two layers, and the action with the largest logit."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.layers(observation).argmax(-1)


def imitated(seed: int) -> dict[str, Any]:
    """Imitate a controller that pushes the cart below the pole, and return the weights at three times."""
    torch.manual_seed(seed)
    net, checkpoints = Greedy(), {}
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    for step in range(301):
        if step in (0, 20, 300):
            checkpoints[f"step {step}"] = {name: value.clone() for name, value in net.state_dict().items()}
        observation = torch.randn(256, 4) * torch.tensor([1.0, 1.0, 0.1, 1.0])
        push = (observation * torch.tensor([0.1, 0.3, 3.0, 1.0])).sum(-1) > 0
        loss = nn.functional.cross_entropy(net.layers(observation), push.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return checkpoints


def evaluate(checkpoints: dict[str, Any], episodes: int, seed: int) -> torch.Tensor:
    """Return the mean return of each checkpoint on each variant, ``[checkpoints, variants]``."""
    policies = {}
    for name, weights in checkpoints.items():
        net = Greedy()
        net.load_state_dict(weights)
        policies[name] = TensorDictModule(net, ["observation"], ["action"])
    bank = PolicyBank(policies)
    agents = bank.select(list(checkpoints))["policy_id"].reshape(-1, 1, 1)
    variants = torch.tensor(list(GRAVITY.values())).reshape(1, -1, 1).expand(1, -1, episodes)
    with Collector(lambda: SerialEnv(16, make_env), bank, seed=seed) as collector:
        found = collector.execute(
            agent_info=TensorDict({"policy_id": agents}, agents.shape),
            env_info=TensorDict({"gravity": variants}, variants.shape),
        ).result()
    mean: torch.Tensor = found.episode_return().mean(-1)
    return mean


def show(names: list[str], table: torch.Tensor) -> None:
    """Print the table."""
    shown = Table("checkpoint", *GRAVITY, title="Mean return")
    for name, row in zip(names, table.tolist(), strict=True):
        shown.add_row(name, *(f"{value:.0f}" for value in row))
    Console().print(shown)


def plot(names: list[str], table: torch.Tensor, file: str) -> None:
    """Draw the table as a picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(table.numpy(), aspect="auto", vmin=0, vmax=500)
    axes.set_xticks(range(len(GRAVITY)), list(GRAVITY))
    axes.set_yticks(range(len(names)), names)
    axes.set(title="Mean return")
    figure.colorbar(image)
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", nargs="*", metavar="FILE", help="state dicts of the net, saved by torch.save")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE", help="draw the table into this file")
    args = parser.parse_args()
    files = args.checkpoints or []
    checkpoints = {file: torch.load(file, weights_only=True) for file in files} or imitated(args.seed)
    table = evaluate(checkpoints, args.episodes, args.seed)
    show(list(checkpoints), table)
    if args.plot:
        plot(list(checkpoints), table, args.plot)


if __name__ == "__main__":
    main()
