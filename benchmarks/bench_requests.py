"""Compare requests for episodes with a handwritten loop, and with batches of the same collector.

    python benchmarks/bench_requests.py [--episodes 256] [--lanes 8] [--rounds 9] [--workers 2] [--cases ...] [--cpu]
                                        [--write FILE]

The handwritten loop steps gymnasium environments in a list and samples actions with torch. An environment whose episode
has ended begins the next one at once; without further episodes it is left out, and the net is called with the remaining
rows. The loop stores observations, actions, log-probabilities, rewards and both done flags in preallocated arrays, and
returns episodes padded with zeros, as ``Collector.get`` does. Last observations are copied too. The loop over
``SyncVectorEnv`` stores the same, for all environments at once; those whose episode has ended begin another one, so it
takes more steps than the request needs.

The cases: ``short`` episodes end after 22 steps on average (CartPole with a random net, whose actions are drawn by four
operations of torch); in ``actor`` the loop draws them with ``torch.distributions.Categorical``, as PPO loops do, and
the collector with CategoricalActor; ``uneven`` episodes are truncated after 5 to 200 steps, each according to its
``env_info``; ``state`` calls a recurrent agent (a GRU cell of 32); ``grid`` runs 8 agents, selected by ``agent_info``,
in rows of a table. With workers, the environments are either divided between them, or each worker has as many as the
loop. Figures are steps per second, and ratios are to the handwritten loop of the case. ``--write`` adds the medians to
a JSON file: ``requests.json`` has the figures of docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe import Agent, CategoricalActor, Collector, Composite, SerialEnv, SyncDataCollector, Unbounded
from steppe_gym import GymWrapper

CASES = ("short", "actor", "uneven", "state", "grid")
HIDDEN = 32
CLOCK = [time.perf_counter]
AGENTS = 8


class Uneven(gymnasium.Env):  # type: ignore[type-arg]
    """An environment that ends after a number of steps that is passed at its reset."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.state = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int((options or {}).get("length", 5))
        self.state[:] = self.np_random.uniform(-0.05, 0.05, 4)
        return self.state, {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        self.state += 0.01 if action else -0.01
        return self.state, 1.0, False, self.left <= 0, {}


def uneven() -> Any:
    env = GymWrapper(Uneven(), categorical_action_encoding=True)
    env.env_info_spec = Composite(length=Unbounded((), dtype=torch.int64))
    return env


def cartpole() -> Any:
    return GymWrapper(gymnasium.make("CartPole-v1"), categorical_action_encoding=True)


def net(size: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(size, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 2))


class Sample(torch.nn.Module):
    """A net that samples an action, and returns its log-probability."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return drawn(self.net(observation))


class SampleAsUsual(Sample):
    """The same net, with a distribution of torch."""

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        distribution = torch.distributions.Categorical(logits=self.net(observation))
        action = distribution.sample()
        return action, distribution.log_prob(action)


def drawn(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits - logits.logsumexp(-1, keepdim=True)
    action = torch.multinomial(logits.exp(), 1)
    return action.squeeze(-1), logits.gather(-1, action).squeeze(-1)


class Recurrent(Agent):
    """The same with a GRU cell, whose state the agent keeps."""

    agent_state_spec = Composite(h=Unbounded((HIDDEN,)))

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head = torch.nn.GRUCell(4, HIDDEN), torch.nn.Linear(HIDDEN, 2)

    def act(self, observation: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        h = self.cell(observation, h)
        return *drawn(self.head(h)), h

    def forward(self, tensordict: Any) -> Any:
        action, log_prob, h = self.act(tensordict["observation"], tensordict["agent_state", "h"])
        tensordict.set("action", action)
        tensordict.set("log_prob", log_prob)
        return tensordict.set(("next", "agent_state", "h"), h)


class Biased(Agent):
    """Agents that differ in a bias of their logits."""

    agent_info_spec = Composite(agent=Unbounded((), dtype=torch.int64))

    def __init__(self) -> None:
        super().__init__()
        self.net, self.bias = net(), torch.nn.Embedding(AGENTS, 2)

    def act(self, observation: torch.Tensor, agent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return drawn(self.net(observation) + self.bias(agent))

    def forward(self, tensordict: Any) -> Any:
        action, log_prob = self.act(tensordict["observation"], tensordict["agent_info", "agent"])
        tensordict.set("action", action)
        return tensordict.set("log_prob", log_prob)


def by_hand(case: str, lanes: int, episodes: int) -> Callable[[], float]:
    make = Uneven if case == "uneven" else lambda: gymnasium.make("CartPole-v1")
    envs = [make() for _ in range(lanes)]
    for number, env in enumerate(envs):
        env.reset(seed=number)
    classes: dict[str, Callable[[], Recurrent | Biased | Sample]] = {
        "state": Recurrent,
        "grid": Biased,
        "actor": SampleAsUsual,
    }
    sample = classes.get(case, Sample)()
    lengths = lengths_of(episodes)
    longest = 500
    observations = np.zeros((episodes, longest, 4), np.float32)
    last = np.zeros((episodes, longest, 4), np.float32)
    rewards = np.zeros((episodes, longest), np.float32)
    actions, log_probs = np.zeros((episodes, longest), np.int64), np.zeros((episodes, longest), np.float32)
    terminated, truncated = np.zeros((episodes, longest), bool), np.zeros((episodes, longest), bool)
    columns = (observations, last, rewards, actions, log_probs, terminated, truncated)

    @torch.no_grad()
    def run() -> float:
        begun = CLOCK[0]()
        for column in columns:
            column.fill(0)
        waiting = iter(range(lanes, episodes))
        rows, at = list(range(min(lanes, episodes))), [0] * min(lanes, episodes)
        active = list(range(len(rows)))
        h = torch.zeros(len(rows), HIDDEN)

        def reset(lane: int, row: int) -> Any:
            options = {"length": int(lengths[row])} if case == "uneven" else None
            return envs[lane].reset(options=options)[0]

        current = np.stack([reset(lane, row).copy() for lane, row in zip(active, rows, strict=True)])
        steps = 0
        while active:
            inputs = torch.from_numpy(current)
            if isinstance(sample, Recurrent):
                drawn_action, drawn_log_prob, h = sample.act(inputs, h)
            elif isinstance(sample, Biased):
                drawn_action, drawn_log_prob = sample.act(inputs, torch.tensor(rows) % AGENTS)
            else:
                drawn_action, drawn_log_prob = sample(inputs)
            action, log_prob = drawn_action.numpy(), drawn_log_prob.numpy()
            following = np.empty_like(current)
            ended = []
            for k, lane in enumerate(active):
                row, t = rows[k], at[k]
                obs, reward, done, cut, _ = envs[lane].step(int(action[k]))
                observations[row, t], last[row, t], rewards[row, t] = current[k], obs, reward
                actions[row, t], log_probs[row, t], terminated[row, t], truncated[row, t] = (
                    action[k], log_prob[k], done, cut,
                )  # fmt: skip
                following[k] = obs
                at[k] = t + 1
                steps += 1
                if done or cut:
                    row = next(waiting, None)
                    if row is None:
                        ended.append(k)
                    else:
                        rows[k], at[k] = row, 0
                        following[k] = reset(lane, row)
                        if case == "state":
                            h[k] = 0
            current = following
            if ended:
                keep = [k for k in range(len(active)) if k not in ended]
                active, rows, at = [active[k] for k in keep], [rows[k] for k in keep], [at[k] for k in keep]
                current, h = current[keep], h[keep]
        return steps / (CLOCK[0]() - begun)

    return run


def by_vector_env(lanes: int, episodes: int) -> Callable[[], float]:
    """The loop by hand over gymnasium's SyncVectorEnv, which ends when the requested number of episodes has ended."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * lanes, autoreset_mode=mode)
    envs.reset(seed=0)
    sample = Sample()
    most = 500 * episodes // lanes
    observations, last = np.zeros((2, most, lanes, 4), np.float32)
    rewards, log_probs = np.zeros((2, most, lanes), np.float32)
    actions = np.zeros((most, lanes), np.int64)
    terminated, truncated = np.zeros((2, most, lanes), bool)

    @torch.no_grad()
    def run() -> float:
        begun, t, ended = CLOCK[0](), 0, 0
        current, _ = envs.reset()
        while ended < episodes:
            action, log_prob = sample(torch.from_numpy(current))
            observations[t], actions[t], log_probs[t] = current, action.numpy(), log_prob.numpy()
            current, rewards[t], terminated[t], truncated[t], infos = envs.step(actions[t])
            last[t] = current
            done = terminated[t] | truncated[t]
            if done.any():
                ended += int(done.sum())
                for lane in done.nonzero()[0]:
                    last[t, lane] = infos["final_obs"][lane]
            t += 1
        return t * lanes / (CLOCK[0]() - begun)

    return run


def lengths_of(episodes: int) -> torch.Tensor:
    return torch.randint(5, 200, (episodes,), generator=torch.Generator().manual_seed(1))


def requesting(case: str, lanes: int, episodes: int, workers: int) -> tuple[Callable[[], float], Any]:
    one = uneven if case == "uneven" else cartpole
    policies: dict[str, Callable[[], Any]] = {
        "state": Recurrent,
        "grid": Biased,
        "actor": lambda: CategoricalActor(net(), one_hot=False, return_log_prob=True),
    }
    policy = policies.get(case, lambda: TensorDictModule(Sample(), ["observation"], ["action", "log_prob"]))()
    each = lanes // max(workers, 1)
    collector = Collector(lambda: SerialEnv(each, one), policy, num_workers=workers, seed=0)
    infos: dict[str, Any] = {"n_episodes": episodes}
    if case == "uneven":
        infos = {"env_info": TensorDict({"length": lengths_of(episodes)}, [episodes])}
    elif case == "grid":
        agents = TensorDict({"agent": torch.arange(AGENTS).unsqueeze(1)}, [AGENTS, 1])
        table = agents.expand(AGENTS, episodes // AGENTS)
        infos = {"agent_info": table}

    def run() -> float:
        begun = CLOCK[0]()
        collector.execute(**infos)
        found = collector.get()
        assert found is not None
        return int(found.length.sum()) / (CLOCK[0]() - begun)

    return run, collector.shutdown


def iterating(lanes: int) -> tuple[Callable[[], float], Any]:
    policy = TensorDictModule(Sample(), ["observation"], ["action", "log_prob"])
    collector = SyncDataCollector(lambda: SerialEnv(lanes, cartpole), policy, frames_per_batch=100 * lanes, seed=0)

    def run() -> float:
        begun, frames = CLOCK[0](), 0
        for _ in range(7):
            frames += next(collector).numel()
        return frames / (CLOCK[0]() - begun)

    return run, collector.shutdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--lanes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=2, help="processes; 0 for none")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=CASES)
    parser.add_argument("--cpu", action="store_true", help="CPU time of this process, for busy machines")
    parser.add_argument("--write", metavar="FILE", help="add the medians to a JSON file")
    args = parser.parse_args()

    from common import Contest, show, write_figures

    torch.set_num_threads(1)
    if args.cpu:
        CLOCK[0], args.workers = time.process_time, 0
    rows = []
    for case in args.cases:
        contest = Contest(case, "steps a second")
        contest.add("loop by hand", by_hand(case, args.lanes, args.episodes))
        run, close = requesting(case, args.lanes, args.episodes, 0)
        contest.add("execute", run)
        closers = [close]
        for lanes in (args.lanes, args.lanes * args.workers) if args.workers else ():
            run, close = requesting(case, lanes, args.episodes, args.workers)
            contest.add(f"execute, {args.workers} workers with {lanes // args.workers} each", run)
            closers.append(close)
        if case == "short":
            contest.add("loop over SyncVectorEnv", by_vector_env(args.lanes, args.episodes))
            run, close = iterating(args.lanes)
            contest.add("iterating", run)
            closers.append(close)
        medians = contest.run(args.rounds)
        if args.write:
            libraries = "gymnasium torch tensordict numpy"
            write_figures(args.write, case, medians, unit="steps/s", rounds=args.rounds, libraries=libraries)
        hand = medians["loop by hand"]
        ratios = {
            name: sorted(value / peer for value, peer in zip(values, contest.figures["loop by hand"], strict=True))
            for name, values in contest.figures.items()
        }
        for name, value in medians.items():
            paired = ratios[name][len(ratios[name]) // 2]
            rows.append([case, name, f"{value:,.0f}", f"{value / hand:.2f}x", f"{paired:.2f}x"])
        for close in closers:
            close()
    title = f"{args.episodes} episodes on {args.lanes} environments, {os.cpu_count()} cores"
    show(title, ["episodes", "API", "steps/s", "of by hand", "median of rounds"], rows)


if __name__ == "__main__":
    main()
