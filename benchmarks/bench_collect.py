"""What a collector costs over a loop written by hand: 8 environments in one process, the same net in both; and what two
worker processes with 4 environments each make of it.

    python benchmarks/bench_collect.py [--frames 8000] [--rounds 9] [--ids CartPole-v1 ...] [--workers 2]

The loop by hand steps gymnasium's SyncVectorEnv and keeps observations, actions, rewards and ends in tensors made
beforehand; it does not keep last observations. Figures are frames a second, ratios are those of the loop by hand.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

N = 8
STEPS = 125


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=8000, help="in a slice")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ids", nargs="*", default=["CartPole-v1", "Pendulum-v1"])
    parser.add_argument("--workers", type=int, default=2, help="processes of the collector over workers; 0 for none")
    args = parser.parse_args()

    import torch
    from common import Contest, show

    torch.set_num_threads(1)
    rows = []
    for name in args.ids:
        for kind in ("deterministic", "probabilistic"):
            contest = Contest(name, "frames a second")
            closers = contestants(contest, name, kind, max(args.frames // (N * STEPS), 1), args.workers)
            medians = contest.run(args.rounds)
            for close in closers:
                close()
            hand = medians["loop by hand"]
            rows += [[name, kind, label, f"{v:,.0f}", f"{v / hand:.2f}x"] for label, v in medians.items()]
    show(
        f"frames a second, {N} environments, batches of {STEPS} steps",
        ["environment", "policy", "API", "frames/s", "of by hand"],
        rows,
    )


def contestants(contest: Any, name: str, kind: str, batches: int, workers: int = 0) -> list[Callable[[], None]]:
    """Enter the loop by hand and the collectors; returns what closes them."""
    import gymnasium
    import torch
    from tensordict.nn import TensorDictModule

    from steppe import (
        CategoricalActor,
        Collector,
        MultiSyncDataCollector,
        NormalActor,
        SerialEnv,
        env_factory,
        make_env,
    )

    vector = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(name)] * N)
    size = vector.single_observation_space.shape[0]
    discrete = isinstance(vector.single_action_space, gymnasium.spaces.Discrete)
    outputs = int(vector.single_action_space.n) if discrete else vector.single_action_space.shape[0]
    torch.manual_seed(0)
    width = outputs if discrete or kind == "deterministic" else 2 * outputs
    net = torch.nn.Sequential(
        torch.nn.Linear(size, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, width)
    )
    encoding = {"categorical_action_encoding": True} if discrete else {}
    batch = SerialEnv(N, env_factory(f"gym:{name}", **encoding))
    if kind == "deterministic":
        choose = greedy(discrete)

        class Policy(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = net

            def forward(self, observation: torch.Tensor) -> torch.Tensor:
                return choose(self.net(observation))

        policy: Any = Policy()
        collectors = {
            "Collector, module on tensors": policy,
            "Collector, TensorDictModule": TensorDictModule(policy, ["observation"], ["action"]),
        }
    else:
        fused = CategoricalActor(net, one_hot=False) if discrete else NormalActor(net)
        collectors = {
            "Collector, ProbabilisticTensorDictSequential": actor(net, discrete),
            f"Collector, {type(fused).__name__}": fused,
        }

    contest.add("loop by hand", by_hand(vector, net, kind, discrete, batches))
    closers: list[Callable[[], None]] = [vector.close]
    for label, policy in collectors.items():
        collector = Collector(batch, policy, frames_per_batch=N * STEPS, seed=0)
        contest.add(label, collecting(collector, batches))
    closers.append(batch.close)
    for label, policy in collectors.items() if workers else ():
        several = MultiSyncDataCollector(
            [partial(SerialEnv, N // workers, env_factory(f"gym:{name}", **encoding))] * workers,
            policy,
            frames_per_batch=N * STEPS,
            seed=0,
        )
        closers.append(several.shutdown)
        contest.add(f"{workers} workers, {label.partition(', ')[2]}", collecting(several, batches))
    if kind == "deterministic":
        for label, env in {
            "Collector, random": batch,
            "Collector, random, 1 environment": make_env(f"gym:{name}"),
        }.items():
            collector = Collector(env, frames_per_batch=N * STEPS, seed=0)
            contest.add(label, collecting(collector, batches))
    return closers


def greedy(discrete: bool) -> Callable[[Any], Any]:
    """The action of what the net says."""
    return (lambda out: out.argmax(-1)) if discrete else (lambda out: out.tanh())


def actor(net: Any, discrete: bool) -> Any:
    """A TensorDict actor that writes the action and its log-probability."""
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
        body, distribution = torch.nn.Sequential(net, NormalParamExtractor()), _Normal
    return ProbabilisticTensorDictSequential(
        TensorDictModule(body, ["observation"], keys),
        ProbabilisticTensorDictModule(keys, ["action"], distribution_class=distribution, return_log_prob=True),
    )


def _Normal(loc: Any, scale: Any) -> Any:
    import torch

    return torch.distributions.Independent(torch.distributions.Normal(loc, scale), 1)


def by_hand(vector: Any, net: Any, kind: str, discrete: bool, batches: int) -> Callable[[], float]:
    """The loop that a person would write."""
    import torch

    size = vector.single_observation_space.shape[0]
    shape = () if discrete else vector.single_action_space.shape
    observations = torch.zeros(STEPS, N, size)
    actions = torch.zeros(STEPS, N, *shape, dtype=torch.int64 if discrete else torch.float32)
    rewards, ends = torch.zeros(STEPS, N), torch.zeros(STEPS, N, dtype=torch.bool)
    log_probs = torch.zeros(STEPS, N)
    choose = greedy(discrete)
    state = {"observation": vector.reset(seed=0)[0]}

    def act(observation: Any, t: int) -> Any:
        out = net(observation)
        if kind == "deterministic":
            return choose(out)
        if discrete:
            distribution: Any = torch.distributions.Categorical(logits=out)
        else:
            loc, scale = out.chunk(2, -1)
            scale = torch.nn.functional.softplus(scale)
            distribution = torch.distributions.Independent(torch.distributions.Normal(loc, scale), 1)
        action = distribution.sample()
        log_probs[t] = distribution.log_prob(action)
        return action

    @torch.no_grad()
    def run() -> float:
        start = time.perf_counter()
        current = state["observation"]
        for _ in range(batches):
            for t in range(STEPS):
                observation = torch.from_numpy(current).float()
                action = act(observation, t)
                following, reward, terminated, truncated, _ = vector.step(action.numpy())
                observations[t] = observation
                actions[t] = action
                rewards[t] = torch.from_numpy(reward)
                ends[t] = torch.from_numpy(terminated | truncated)
                current = following
        state["observation"] = current
        return batches * STEPS * N / (time.perf_counter() - start)

    return run


def collecting(collector: Any, batches: int) -> Callable[[], float]:
    """A slice of a collector's batches."""

    def run() -> float:
        start = time.perf_counter()
        for _ in range(batches):
            next(collector)
        return batches * collector.frames_per_batch / (time.perf_counter() - start)

    return run


if __name__ == "__main__":
    main()
