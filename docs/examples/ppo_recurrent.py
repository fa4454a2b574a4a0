"""Recurrent PPO in one file: CartPole without velocities, which a policy has to remember.

python docs/examples/ppo_recurrent.py [--frames 200000] [--seed 0] [--plot ppo_recurrent.png] [--save policy.pt]

The memory of the policy is an entry of the data: TensorDictPrimer fills it at each reset, and the policy writes the
next one. The loss runs the cell again over whole batches of steps, from the stored memory of their first step.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from rich.progress import Progress
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical

from steppe import (
    Compose,
    EnvBase,
    ExplorationType,
    InitTracker,
    ObservationTransform,
    SerialEnv,
    SyncDataCollector,
    TensorDictPrimer,
    TransformedEnv,
    Unbounded,
    exploration_type,
    gae,
    set_exploration_type,
)

N_ENVS, N_STEPS, EPOCHS, ENVS_OF_MINIBATCH, SIZE = 16, 64, 8, 4, 64
GAMMA, LAMBDA, CLIP, LEARNING_RATE = 0.99, 0.95, 0.2, 1e-3
REWARD_SCALE = 0.01  # values of about 1, so that the critic's gradient does not drown the actor's in the shared cell


class HideVelocities(ObservationTransform):
    """Keep the position of the cart and the angle of the pole: ``[*B, 4]`` becomes ``[*B, 2]``."""

    def __init__(self) -> None:
        super().__init__(in_keys=["observation"])

    def _apply_transform(self, observation: torch.Tensor) -> torch.Tensor:
        return observation[..., [0, 2]]

    def transform_observation_spec(self, observation_spec):
        observation_spec["observation"] = Unbounded((*observation_spec.shape, 2))
        return observation_spec


def make_env(n: int) -> EnvBase:
    memory = TensorDictPrimer({"memory": Unbounded((SIZE,))})  # zeros at each reset
    return TransformedEnv(SerialEnv(n, "gym:CartPole-v1"), Compose(HideVelocities(), InitTracker(), memory))


class Recurrent(nn.Module):
    """A GRU cell whose memory feeds the logits of the actions and the value."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.cell = nn.Sequential(nn.Linear(2, SIZE), nn.Tanh()), nn.GRUCell(SIZE, SIZE)
        self.logits, self.value = nn.Linear(SIZE, 2), nn.Linear(SIZE, 1)

    def forward(self, observation: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Act: return the one-hot action, its log-probability, and the next memory."""
        flat = memory.reshape(-1, SIZE)
        memory = self.cell(self.input(observation).reshape(-1, SIZE), flat).reshape(memory.shape)
        logits = self.logits(memory)
        greedy = exploration_type() == ExplorationType.DETERMINISTIC
        action = logits.argmax(-1) if greedy else Categorical(logits=logits).sample()
        return nn.functional.one_hot(action, 2), logits.log_softmax(-1).gather(-1, action[..., None])[..., 0], memory

    def unroll(self, batch: TensorDictBase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Run over steps; return logits ``[n, T, 2]``, values ``[n, T]`` and values of ``next`` ``[n, T]``."""
        memory, inputs = batch["memory"][:, 0], self.input(batch["observation"])
        starts = batch["is_init"]  # [n, T, 1]
        states = []
        for t in range(inputs.shape[1]):
            memory = self.cell(inputs[:, t], memory * ~starts[:, t])
            states.append(memory)
        kept = torch.stack(states, 1)
        with torch.no_grad():  # what follows the last observation of each step, also where an episode ends
            after = self.cell(self.input(batch["next", "observation"]).flatten(0, 1), kept.flatten(0, 1))
            following = self.value(after).reshape(kept.shape[:2])
        return self.logits(kept), self.value(kept).squeeze(-1), following


def add_advantages(batch: TensorDictBase, policy: Recurrent) -> None:
    """Write generalized advantages and returns, both ``[n, T]``."""
    with torch.no_grad():
        _, value, following = policy.unroll(batch)
    reward = REWARD_SCALE * batch["next", "reward"]
    advantage, batch["returns"] = gae(batch, value, following, gamma=GAMMA, lambda_=LAMBDA, reward=reward)
    batch["advantage"] = (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def loss_of(policy: Recurrent, batch: TensorDictBase) -> torch.Tensor:
    logits, value, _ = policy.unroll(batch)
    log_probs = logits.log_softmax(-1)
    ratio = ((log_probs * batch["action"]).sum(-1) - batch["log_prob"]).exp()
    advantage = batch["advantage"]
    clipped = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    return 0.5 * (value - batch["returns"]).square().mean() - clipped


def train(frames: int, seed: int, evaluate_every: int = 10, save: str | None = None) -> Iterator[tuple[int, float]]:
    """Train; yield ``(frames, mean return of 10 episodes)`` after some batches."""
    torch.set_num_threads(1)  # small nets gain nothing from more
    torch.manual_seed(seed)
    policy = Recurrent()
    actor = TensorDictModule(policy, ["observation", "memory"], ["action", "log_prob", ("next", "memory")])
    optimiser = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE, eps=1e-5)
    size = N_ENVS * N_STEPS
    total = frames // size * size
    with (
        SyncDataCollector(make_env(N_ENVS), actor, frames_per_batch=size, total_frames=total, seed=seed) as collector,
        make_env(10) as evaluation,
    ):
        evaluation.set_seed(seed + 1000)
        for number, batch in enumerate(collector, 1):
            optimiser.param_groups[0]["lr"] = LEARNING_RATE * max(1 - number * size / frames, 0.0)
            add_advantages(batch, policy)
            for _ in range(EPOCHS):
                for rows in torch.randperm(N_ENVS).split(ENVS_OF_MINIBATCH):
                    optimiser.zero_grad()
                    loss_of(policy, batch[rows]).backward()
                    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                    optimiser.step()
            if number % evaluate_every == 0:
                if save:
                    torch.save(policy.state_dict(), save)
                with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
                    data = evaluation.rollout(500, actor, break_when_all_done=True, break_when_any_done=False)
                alive = data["next", "done"].cumsum(1) - data["next", "done"].long() == 0
                yield number * size, float((data["next", "reward"] * alive).sum(1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="file for a plot of the learning curve")
    parser.add_argument("--save", help="file for the weights, written at each evaluation")
    args = parser.parse_args()
    curve = []
    with Progress() as progress:
        task = progress.add_task("train", total=args.frames)
        for done, mean_return in train(args.frames, args.seed, save=args.save):
            curve.append((done, mean_return))
            progress.update(task, completed=done)
            progress.console.print(f"{done:>8} frames  mean return {mean_return:6.1f}")
    if args.plot:
        import matplotlib.pyplot as plt

        plt.plot(*zip(*curve, strict=True))
        plt.xlabel("frames")
        plt.ylabel("mean return of 10 episodes")
        plt.savefig(args.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
