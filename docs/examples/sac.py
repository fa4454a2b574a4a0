"""SAC in one file: a collector fills a replay buffer, from which each frame is followed by one step of learning.

python docs/examples/sac.py [--env ID] [--frames N] [--seed 0] [--n-step 1] [--prioritized] [--plot FILE] [--save FILE]
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Iterator
from functools import partial

import torch
from rich.progress import Progress
from torch import nn

from steppe import (
    AsyncCollector,
    CatTensors,
    Collector,
    Compose,
    DoubleToFloat,
    EnvBase,
    ExplorationType,
    FrameSkipTransform,
    LazyTensorStorage,
    MultiStepTransform,
    PrioritizedSampler,
    RandomSampler,
    SerialEnv,
    TensorDictReplayBuffer,
    TransformedEnv,
    evaluate,
    exploration_type,
    make_env,
)

FRAMES = {"gym:Pendulum-v1": 15_000, "gym:HalfCheetah-v5": 20_000, "dm:cartpole-swingup": 15_000}
#: Frames in a batch. A worker collects batches of several frames while this process learns; it is faster and acts with
#: older weights, with which HalfCheetah is learned more slowly.
N_STEPS = {"gym:Pendulum-v1": 50, "gym:HalfCheetah-v5": 1, "dm:cartpole-swingup": 50}
BATCH, CAPACITY, RANDOM_FRAMES = 256, 100_000, 1_000
HIDDEN, GAMMA, TAU, LEARNING_RATE = 128, 0.99, 0.005, 1e-3


def make(name: str) -> EnvBase:
    """Return an environment with one vector of observations; in dm_control's, an action lasts four steps."""
    steps = [FrameSkipTransform(4), CatTensors(["position", "velocity"], "observation")] if name[:3] == "dm:" else []
    return TransformedEnv(make_env(name), Compose(*steps, DoubleToFloat()))


def net(inputs: int, outputs: int) -> nn.Module:
    layers = [nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)]
    return nn.Sequential(*layers)


class Actor(nn.Module):
    """A normal distribution, squashed to the bounds of the action."""

    def __init__(self, inputs: int, actions: int, highest: float) -> None:
        super().__init__()
        self.net, self.highest = net(inputs, 2 * actions), highest

    def sample(self, observation: torch.Tensor, noisy: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions ``[n, k]`` and their log-probabilities ``[n]``."""
        loc, log_scale = self.net(observation).chunk(2, -1)
        log_scale = log_scale.clamp(-5, 2)
        noise = torch.randn_like(loc) if noisy else torch.zeros_like(loc)
        raw = loc + log_scale.exp() * noise
        # log(1 - tanh(raw)^2), in a form without overflow.
        squash = 2 * (math.log(2) - raw - nn.functional.softplus(-2 * raw))
        log_prob = -0.5 * noise**2 - log_scale - 0.5 * math.log(2 * math.pi) - squash - math.log(self.highest)
        return self.highest * raw.tanh(), log_prob.sum(-1)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.sample(observation, exploration_type() == ExplorationType.RANDOM)[0]  # evaluate() wants no noise


class Critics(nn.Module):
    """Two estimates of the value of an action."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.nets = nn.ModuleList([net(inputs, 1), net(inputs, 1)])

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return both estimates, ``[2, n]``."""
        return torch.stack([each(torch.cat([observation, action], -1)).squeeze(-1) for each in self.nets])


def train(
    frames: int,
    seed: int,
    n: int = 1,
    prioritized: bool = False,
    evaluate_every: int = 2_000,
    name: str = "gym:Pendulum-v1",
    save: str | None = None,
) -> Iterator[tuple[int, float]]:
    """Train; yield ``(frames, mean return of 10 episodes)`` after each ``evaluate_every`` frames."""
    torch.set_num_threads(1)  # small nets gain nothing from more, and workers need the cores
    torch.manual_seed(seed)
    with make(name) as env:
        inputs, n_actions = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
        actor = Actor(inputs, n_actions, float(env.action_spec.space.high.max()))
    critics, log_alpha = Critics(inputs + n_actions), torch.zeros((), requires_grad=True)
    target = copy.deepcopy(critics)
    adam = partial(torch.optim.Adam, lr=LEARNING_RATE)
    optimisers = [adam(group) for group in (actor.parameters(), critics.parameters(), [log_alpha])]
    sampler = PrioritizedSampler(CAPACITY, alpha=0.6, beta=0.4) if prioritized else RandomSampler()
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(CAPACITY), sampler=sampler, batch_size=BATCH, transform=MultiStepTransform(n, GAMMA)
    )
    n_steps = N_STEPS[name]
    collector = (AsyncCollector if n_steps > 1 else Collector)(
        partial(make, name),
        actor,
        frames_per_batch=n_steps,
        total_frames=frames // n_steps * n_steps,
        init_random_frames=RANDOM_FRAMES,
        replay_buffer=buffer,
        seed=seed,
    )

    def minimize(loss: torch.Tensor, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    with collector:
        for n_batches, _ in enumerate(collector, 1):
            if buffer.write_count < RANDOM_FRAMES:
                continue
            for _ in range(n_steps):  # one update for each frame
                batch = buffer.sample()
                observation, after, alpha = batch["observation"], batch["next", "observation"], log_alpha.exp().detach()
                reward, terminated = (batch["next", key].squeeze(-1) for key in ("reward", "terminated"))
                with torch.no_grad():
                    action, log_prob = actor.sample(after)
                    value = target(after, action).amin(0) - alpha * log_prob
                    goal = reward + batch["gamma"] * value * ~terminated
                error = critics(observation, batch["action"]) - goal
                weight = batch["priority_weight"] if prioritized else 1.0
                minimize((weight * error**2).mean(), optimisers[1])
                action, log_prob = actor.sample(observation)
                minimize((alpha * log_prob - critics(observation, action).amin(0)).mean(), optimisers[0])
                # The entropy that SAC aims at is minus the number of dimensions of the action.
                minimize(-(log_alpha * (log_prob.detach() - n_actions)).mean(), optimisers[2])
                if prioritized:
                    buffer.update_priority(batch["index"], error.detach().abs().amax(0))
                with torch.no_grad():
                    for old, new in zip(target.parameters(), critics.parameters(), strict=True):
                        old.lerp_(new, TAU)
            collector.update_policy_weights_()
            if n_batches * n_steps % evaluate_every == 0:
                if save:
                    torch.save(actor.state_dict(), save)
                envs = partial(SerialEnv, 10, partial(make, name))
                yield buffer.write_count, evaluate(actor, envs, 10, seed=seed + 1000).mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="gym:Pendulum-v1", choices=sorted(FRAMES))
    parser.add_argument("--frames", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-step", type=int, default=1)
    parser.add_argument("--prioritized", action="store_true")
    parser.add_argument("--plot", help="file for a plot of the learning curve")
    parser.add_argument("--save", help="file for the weights, written at each evaluation")
    args = parser.parse_args()
    total, curve = args.frames or FRAMES[args.env], []
    with Progress() as progress:
        task = progress.add_task("train", total=total)
        points = train(total, args.seed, args.n_step, args.prioritized, name=args.env, save=args.save)
        for frames, mean_return in points:
            curve.append((frames, mean_return))
            progress.update(task, completed=frames)
            progress.console.print(f"{frames:>8} frames  mean return {mean_return:7.1f}")
    if args.plot:
        import matplotlib.pyplot as plt

        plt.plot(*zip(*curve, strict=True))
        plt.gca().set(xlabel="frames", ylabel="mean return")
        plt.savefig(args.plot, bbox_inches="tight")


if __name__ == "__main__":
    main()
