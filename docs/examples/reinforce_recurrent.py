"""REINFORCE with a recurrent agent: episodes by request, gradients by replay.

python docs/examples/reinforce_recurrent.py [--iterations 40] [--episodes 16] [--workers 0] [--seed 0] [--plot FILE]

The agent sees the position of the cart and the angle of the pole, but no velocities, so it has to remember. ``execute``
runs whole episodes; ``replay`` runs the agent again on the recorded steps, with gradients through time.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical

from steppe import Agent, Collector, Composite, SerialEnv, Unbounded
from steppe_agents import replay
from steppe_gym import GymEnv

HIDDEN, LEARNING_RATE, GAMMA, ENTROPY = 32, 1e-2, 0.99, 0.01
SEEN = [0, 2]  # position and angle, of position, velocity, angle and angular velocity
SCALE = torch.tensor([1.0, 10.0])


class Recurrent(Agent):
    """A GRU cell and a layer of logits. The initial state is learned."""

    agent_state_spec = Composite(h=Unbounded((HIDDEN,)))
    agent_info_spec = Composite(greedy=Unbounded((), dtype=torch.bool))
    agent_info_default = {"greedy": False}

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.GRUCell(len(SEEN), HIDDEN), nn.Linear(HIDDEN, 2)
        self.first = nn.Parameter(torch.zeros(HIDDEN))

    def initial_state(self, td: Any) -> Any:
        td = td.select()
        td["h"] = self.first.expand(*td.batch_size, HIDDEN)
        return td

    def logits(self, td: Any) -> torch.Tensor:
        """Compute the logits ``[k, 2]``, and write the next state."""
        h = self.cell(td["observation"][:, SEEN] * SCALE, td["agent_state", "h"])
        td["next", "agent_state", "h"] = h
        logits: torch.Tensor = self.head(h)
        return logits

    def forward(self, td: Any) -> Any:
        logits = self.logits(td)
        greedy = td["agent_info", "greedy"]
        td["action"] = torch.where(greedy, logits.argmax(-1), Categorical(logits=logits).sample())
        return td

    def replay(self, td: Any) -> Any:
        """Score the recorded action."""
        policy = Categorical(logits=self.logits(td))
        td["log_prob"], td["entropy"] = policy.log_prob(td["action"]), policy.entropy()
        return td


def returns_to_go(rewards: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return discounted sums of the rewards that follow each step, ``[R, T]``."""
    total, columns = torch.zeros(len(rewards)), []
    for reward, runs in zip(rewards.flip(1).unbind(1), mask.flip(1).unbind(1), strict=True):
        total = torch.where(runs, reward + GAMMA * total, 0.0)
        columns.append(total)
    return torch.stack(columns[::-1], 1)


def train(iterations: int, episodes: int, workers: int, seed: int) -> list[float]:
    """Train the agent, and return the mean return of greedy episodes after each tenth iteration."""
    torch.manual_seed(seed)
    agent = Recurrent()
    optimizer = torch.optim.Adam(agent.parameters(), LEARNING_RATE)
    curve = []

    def make() -> SerialEnv:
        return SerialEnv(8, lambda: GymEnv("CartPole-v1", categorical_action_encoding=True))

    with Collector(make, agent, num_workers=workers, max_steps=200, seed=seed) as collector:
        for iteration in range(iterations):
            trajectories = collector.execute(n_episodes=episodes).result()
            mask = trajectories.mask()
            gain = returns_to_go(trajectories.steps["next", "reward"].squeeze(-1), mask)
            advantage = (gain - gain[mask].mean()) / (gain[mask].std() + 1e-6)
            again = replay(agent, trajectories, keys=["log_prob", "entropy"], state="recompute")
            loss = -torch.where(mask, again["log_prob"] * advantage + ENTROPY * again["entropy"], 0).sum() / mask.sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 1.0)
            optimizer.step()
            collector.update_policy_weights_()
            if iteration % 10 == 9 or iteration == iterations - 1:
                found = collector.execute(agent_info={"greedy": [True] * 8}).result()
                curve.append(float(found.episode_return().mean()))
                print(f"iteration {iteration + 1}: return {curve[-1]:.0f}")
    return curve


def plot(curve: list[float], file: str) -> None:
    """Draw the returns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    axes.plot(range(10, 10 * len(curve) + 1, 10), curve)
    axes.set(
        xlabel="iteration", ylabel="return of a greedy episode", title="REINFORCE with a GRU, CartPole's positions"
    )
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE", help="draw the returns into this file")
    args = parser.parse_args()
    curve = train(args.iterations, args.episodes, args.workers, args.seed)
    if args.plot:
        plot(curve, args.plot)


if __name__ == "__main__":
    main()
