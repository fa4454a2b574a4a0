"""Compare collectors with a handwritten loop, SB3 and TorchRL.

    python benchmarks/bench_collect.py [--frames 8000] [--rounds 9] [--ids CartPole-v1 ...] [--num-envs 1 8 64]
                                       [--workers 2] [--cpu] [--peer-python PYTHON]
    python benchmarks/bench_collect.py --growth FILE.png [--rounds 5]

The handwritten loop steps gymnasium's SyncVectorEnv, and stores observations, actions, rewards and done flags in
preallocated tensors; it does not store last observations. SB3, if it is installed, collects with its ``PPO`` (two nets
of 2x64, because it also computes values). ``--peer-python`` names an interpreter with TorchRL. Figures are frames per
second, and ratios are to the handwritten loop. ``--cpu`` measures the CPU time of this process, for busy machines, and
only for contestants that run in this process.

``--growth`` plots frames per second of the fused actor on CartPole over the numbers of environments, of steps in a
batch and of worker processes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

KINDS = ("random", "deterministic", "probabilistic")
CLOCK = [time.perf_counter]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=8000, help="in a slice")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ids", nargs="*", default=["CartPole-v1", "Pendulum-v1"])
    parser.add_argument("--num-envs", nargs="*", type=int, default=[1, 8, 64])
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="of policies")
    parser.add_argument("--workers", type=int, default=2, help="processes of the collector over workers; 0 for none")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--peer-python", default=None)
    parser.add_argument("--growth", metavar="FILE.png", default=None)
    args = parser.parse_args()

    import torch
    from common import Contest, show

    torch.set_num_threads(1)
    if args.growth:
        growth(args.rounds, args.growth)
        return
    if args.cpu:
        CLOCK[0] = time.process_time
    rows = []
    for name in args.ids:
        for n in args.num_envs:
            for kind in args.kinds:
                contest = Contest(name, "frames a second")
                closers = Case(name, n, kind, args.frames).enter(contest, args.workers, args.peer_python)
                medians = contest.run(args.rounds)
                for close in closers:
                    close()
                hand = medians["loop by hand"]
                label = f"{name} x {n}"
                rows += [[label, kind, api, f"{v:,.0f}", f"{v / hand:.2f}x"] for api, v in medians.items()]
    show(
        "frames a second, batches of 1,000 frames",
        ["environments", "policy", "API", "frames/s", "of by hand"],
        rows,
    )


@dataclass
class Case:
    """An environment, a number of environments and a kind of policy.

    The contestants of a case take turns.

    Attributes:
        name: id of the environment in gymnasium.
        n: number of environments.
        kind: kind of the policy, one of ``KINDS``.
        frames: number of frames in a slice.
    """

    name: str
    n: int
    kind: str
    frames: int

    @property
    def steps(self) -> int:
        """Number of steps of each environment in a batch."""
        return max(1000 // self.n, 16)

    @property
    def batches(self) -> int:
        """Number of batches in a slice."""
        return max(self.frames // (self.n * self.steps), 1)

    def enter(self, contest: Any, workers: int, peer_python: str | None) -> list[Callable[[], Any]]:
        """Add all contestants; return their functions to close."""
        closers = [*self.enter_by_hand(contest), *self.enter_ours(contest, workers), *self.enter_sb3(contest)]
        if peer_python is not None:
            from peer import Peer

            extra = [str(self.n), self.kind, str(self.batches)]
            process = Peer(peer_python, self.name, self.steps, kind="collect", extra=extra)
            contest.add("TorchRL Collector", partial(process.slice, "torchrl"))
            closers.append(process.close)
        return closers

    def make_policies(self) -> tuple[Any, dict[str, Any]]:
        """Make a net, and the policies that use it, by name."""
        import torch
        from tensordict.nn import TensorDictModule

        from steppe import CategoricalActor, NormalActor

        size, outputs, discrete = sizes(self.name)
        torch.manual_seed(0)
        width = outputs if discrete or self.kind == "deterministic" else 2 * outputs
        net = make_net(size, width)
        if self.kind == "random":
            return net, {"random": None}
        if self.kind == "deterministic":
            greedy = Greedy(net, discrete)
            return net, {
                "module on tensors": greedy,
                "TensorDictModule": TensorDictModule(greedy, ["observation"], ["action"]),
            }
        fused = CategoricalActor(net, one_hot=False) if discrete else NormalActor(net)
        return net, {"ProbabilisticTensorDictSequential": make_actor(net, discrete), type(fused).__name__: fused}

    def enter_by_hand(self, contest: Any) -> list[Callable[[], Any]]:
        import gymnasium

        vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(self.name)] * self.n)
        _, _, discrete = sizes(self.name)
        contest.add("loop by hand", by_hand(vector, self.make_policies()[0], self.kind, discrete, self))
        return [vector.close]

    def enter_ours(self, contest: Any, workers: int) -> list[Callable[[], Any]]:
        from steppe import Collector, MultiSyncDataCollector, SerialEnv, env_factory, make_env

        encoding = {"categorical_action_encoding": True} if sizes(self.name)[2] else {}
        factory = env_factory(f"gym:{self.name}", **encoding)
        frames, closers = self.n * self.steps, []
        for label, policy in self.make_policies()[1].items():
            batch: Any = SerialEnv(self.n, factory) if self.n > 1 else make_env(f"gym:{self.name}", **encoding)
            closers.append(batch.close)
            collector = Collector(batch, policy, frames_per_batch=frames, seed=0)
            contest.add(f"Collector, {label}", collecting(collector, self.batches))
            if workers > 1 and self.n >= 2 * workers:
                several = MultiSyncDataCollector(
                    [partial(SerialEnv, self.n // workers, factory)] * workers, policy, frames_per_batch=frames, seed=0
                )
                closers.append(several.shutdown)
                contest.add(f"{workers} workers, {label}", collecting(several, self.batches))
        return closers

    def enter_sb3(self, contest: Any) -> list[Callable[[], Any]]:
        """Add SB3's loop, if it is installed.

        It works only with SB3's policies.
        """
        if self.kind != "probabilistic":
            return []
        try:
            from stable_baselines3 import PPO
            from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv
        except ImportError:
            return []
        import gymnasium

        closers: list[Callable[[], Any]] = []
        for kind in (DummyVecEnv, *([SubprocVecEnv] if 1 < self.n <= 8 else [])):
            env = kind([partial(gymnasium.make, self.name)] * self.n)
            closers.append(env.close)
            frames = self.n * self.steps
            model = PPO("MlpPolicy", env, n_steps=self.steps, batch_size=frames, device="cpu", seed=0)
            _, callback = model._setup_learn(10**9)

            def run(model: Any = model, callback: Any = callback) -> float:
                start = CLOCK[0]()
                for _ in range(self.batches):
                    model.collect_rollouts(model.env, callback, model.rollout_buffer, self.steps)
                return self.batches * self.n * self.steps / (CLOCK[0]() - start)

            contest.add(f"SB3 collect_rollouts, {kind.__name__}", run)
        return closers


def sizes(name: str) -> tuple[int, int, bool]:
    """Return the sizes of observation and action, and whether actions are discrete."""
    import gymnasium

    env = gymnasium.make(name)
    discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
    outputs = int(env.action_space.n) if discrete else env.action_space.shape[0]  # type: ignore
    assert env.observation_space.shape is not None
    return env.observation_space.shape[0], outputs, discrete


def make_net(size: int, width: int) -> Any:
    """Make a net with two hidden layers of 64."""
    from torch import nn

    return nn.Sequential(nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, width))


def Greedy(net: Any, discrete: bool) -> Any:
    """A module that takes the best action."""
    import torch

    class Greedy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            out = self.net(observation)
            return out.argmax(-1) if discrete else out.tanh()

    return Greedy()


def make_actor(net: Any, discrete: bool) -> Any:
    """Make a TensorDict actor that writes the action and its log-probability."""
    import torch
    from tensordict.nn import (
        NormalParamExtractor,
        ProbabilisticTensorDictModule,
        ProbabilisticTensorDictSequential,
        TensorDictModule,
    )

    if discrete:
        keys: Any = ["logits"]
        body, distribution = net, torch.distributions.Categorical
    else:
        keys = ["loc", "scale"]
        body, distribution = torch.nn.Sequential(net, NormalParamExtractor()), independent_normal
    return ProbabilisticTensorDictSequential(
        TensorDictModule(body, ["observation"], keys),
        ProbabilisticTensorDictModule(keys, ["action"], distribution_class=distribution, return_log_prob=True),
    )


def independent_normal(loc: Any, scale: Any) -> Any:
    import torch

    return torch.distributions.Independent(torch.distributions.Normal(loc, scale), 1)


def by_hand(vector: Any, net: Any, kind: str, discrete: bool, case: Case) -> Callable[[], float]:
    """Make the handwritten loop."""
    import torch

    n, steps, batches = case.n, case.steps, case.batches
    size = vector.single_observation_space.shape[0]
    shape = () if discrete else vector.single_action_space.shape
    observations = torch.zeros(steps, n, size)
    actions = torch.zeros(steps, n, *shape, dtype=torch.int64 if discrete else torch.float32)
    rewards, ends = torch.zeros(steps, n), torch.zeros(steps, n, dtype=torch.bool)
    log_probs = torch.zeros(steps, n)
    vector.action_space.seed(0)
    state = {"observation": vector.reset(seed=0)[0]}

    def act(observation: Any, t: int) -> Any:
        if kind == "random":
            return torch.from_numpy(vector.action_space.sample())
        out = net(observation)
        if kind == "deterministic":
            return out.argmax(-1) if discrete else out.tanh()
        if discrete:
            distribution: Any = torch.distributions.Categorical(logits=out)
        else:
            loc, scale = out.chunk(2, -1)
            distribution = independent_normal(loc, torch.nn.functional.softplus(scale))
        action = distribution.sample()
        log_probs[t] = distribution.log_prob(action)
        return action

    @torch.no_grad()
    def run() -> float:
        start = CLOCK[0]()
        current = state["observation"]
        for _ in range(batches):
            for t in range(steps):
                observation = torch.from_numpy(current).float()
                action = act(observation, t)
                following, reward, terminated, truncated, _ = vector.step(action.numpy())
                observations[t] = observation
                actions[t] = action
                rewards[t] = torch.from_numpy(reward)
                ends[t] = torch.from_numpy(terminated | truncated)
                current = following
        state["observation"] = current
        return batches * steps * n / (CLOCK[0]() - start)

    return run


def collecting(collector: Any, batches: int) -> Callable[[], float]:
    """Make a slice of a collector's batches."""

    def run() -> float:
        start = CLOCK[0]()
        for _ in range(batches):
            next(collector)
        return batches * collector.frames_per_batch / (CLOCK[0]() - start)

    return run


# -- how the cost grows


def growth(rounds: int, path: str) -> None:
    """Plot and print frames per second of the fused actor on CartPole."""
    from common import Contest, show

    from steppe import CategoricalActor, Collector, MultiSyncDataCollector, SerialEnv, env_factory

    factory = env_factory("gym:CartPole-v1", categorical_action_encoding=True)
    actor = CategoricalActor(make_net(4, 2), one_hot=False)
    panels: dict[str, dict[int, float]] = {}
    for title, counts in {
        "environments in one process, batches of 4,096 frames": (1, 4, 16, 64, 256),
        "steps in a batch of 8 environments": (16, 64, 256, 1024, 4096),
        "worker processes with 8 environments each, 256 steps in a batch": (1, 2, 4, 8),
    }.items():
        contest, closers = Contest(title, "frames a second"), []
        for count in counts:
            if title.startswith("worker"):
                collector: Any = MultiSyncDataCollector(
                    [partial(SerialEnv, 8, factory)] * count, actor, frames_per_batch=count * 8 * 256, seed=0
                )
                frames = count * 8 * 256
            else:
                n, frames = (count, max(4096 // count, 1) * count) if "one process" in title else (8, 8 * count)
                collector = Collector(SerialEnv(n, factory), actor, frames_per_batch=frames, seed=0)
            closers.append(collector.shutdown)
            contest.add(str(count), collecting(collector, max(16384 // frames, 1)))
        panels[title] = {int(count): figure for count, figure in contest.run(rounds).items()}
        for close in closers:
            close()
    show(
        "frames a second, CartPole-v1, CategoricalActor of 2x64",
        ["what grows", "number", "frames/s"],
        [[title, f"{count:,}", f"{v:,.0f}"] for title, found in panels.items() for count, v in found.items()],
    )
    draw(panels, path)


def draw(panels: dict[str, dict[int, float]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(12, 3.2), sharey=True)
    for axis, (title, found) in zip(axes, panels.items(), strict=True):
        axis.plot(list(found), list(found.values()), marker="o")
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(found), [f"{count:,}" for count in found])
        axis.set_title("\n".join(title.split(", ")), fontsize=9)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("frames a second")
    axes[0].set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
