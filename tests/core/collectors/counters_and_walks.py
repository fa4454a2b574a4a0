"""Environments and agents that requests are tested with: counters and walks that say who they are."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict

from steppe import (
    Agent,
    Categorical,
    Collector,
    Composite,
    EnvBase,
    MultiSyncDataCollector,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    Unbounded,
)
from steppe_gym import GymWrapper

LENGTHS = [3, 1, 7, 5, 2, 9, 4, 6]


class CountTo(EnvBase):
    """An environment that counts to a number passed at its reset."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.int64
        self.observation_spec = Composite(t=Unbounded((1,), dtype=whole), env_id=Unbounded((1,), dtype=whole))
        self.action_spec = Categorical(2)
        self.reward_spec = Unbounded((1,))
        self.add_truncated_keys()
        self.env_info_spec = Composite(length=Unbounded((), dtype=whole), env_id=Unbounded((), dtype=whole))
        self.to_go = self.t = self.env_id = 0

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _observed(self) -> dict[str, torch.Tensor]:
        return {"t": torch.tensor([self.t]), "env_id": torch.tensor([self.env_id])}

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        info = None if tensordict is None else tensordict.get("env_info", None)
        self.t = 0
        if info is not None:
            self.to_go, self.env_id = int(info["length"]), int(info["env_id"])
        return TensorDict(self._observed())

    def _step(self, tensordict: Any) -> Any:
        self.t += 1
        done = torch.tensor([self.t == self.to_go])
        return TensorDict(
            {
                **self._observed(),
                "reward": torch.ones(1),
                "done": done,
                "terminated": done,
                "truncated": torch.zeros(1, dtype=torch.bool),
            }
        )


class MyEnv(EnvBase):
    """The walk of the rlstructures documents.

    Each step moves 0.3 to the left or right, from a random start, until the position is outside.
    """

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(
            x=Unbounded((1,)), identifier=Unbounded((1,)), env_id=Unbounded((1,), dtype=torch.int64)
        )
        self.action_spec = Categorical(2)
        self.reward_spec = Unbounded((1,))
        self.env_info_spec = Composite(env_id=Unbounded((), dtype=torch.int64))
        self.generator = torch.Generator()
        self.env_id = 0

    def _set_seed(self, seed: int | None) -> None:
        self.generator.manual_seed(seed or 0)

    def _observed(self) -> dict[str, torch.Tensor]:
        return {
            "x": self.x.clone(),
            "identifier": self.identifier.clone(),
            "env_id": torch.tensor([self.env_id]),
        }

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        info = None if tensordict is None else tensordict.get("env_info", None)
        self.env_id = 0 if info is None else int(info["env_id"])
        self.x = torch.rand(1, generator=self.generator) * 2 - 1
        self.identifier = torch.rand(1, generator=self.generator)
        return TensorDict(self._observed())

    def _step(self, tensordict: Any) -> Any:
        self.x = self.x + (0.3 if int(tensordict["action"]) else -0.3)
        done = self.x.abs() > 1
        return TensorDict({**self._observed(), "reward": self.x.clone(), "done": done, "terminated": done})


class UniformAgent(Agent):
    """Acts at random, counts its steps and says its number."""

    agent_info_spec = Composite(agent_id=Unbounded((), dtype=torch.int64))
    agent_info_default = {"agent_id": 0}
    agent_state_spec = Composite(timestep=Unbounded((), dtype=torch.int64))

    def __init__(self, n_actions: int = 2) -> None:
        super().__init__()
        self.n_actions = n_actions

    def forward(self, tensordict: Any) -> Any:
        probabilities = torch.randn(*tensordict.batch_size, self.n_actions).softmax(-1)
        tensordict.set("action", torch.multinomial(probabilities, 1).squeeze(-1))
        tensordict.set("action_probabilities", probabilities)
        tensordict.set("agent_id", tensordict["agent_info", "agent_id"].clone())
        tensordict.set(("next", "agent_state", "timestep"), tensordict["agent_state", "timestep"] + 1)
        return tensordict


class Echo:
    """Always 1; notes how many rows it is called with."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        self.sizes.append(len(tensordict))
        return tensordict.set("action", torch.ones(tensordict.batch_size, dtype=torch.int64))


def echo(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("action", torch.ones(tensordict.batch_size, dtype=torch.int64))


def counters(n: int = 4) -> EnvBase:
    return SerialEnv(n, CountTo)


class Walk(gymnasium.Env):  # type: ignore[type-arg]
    """The same walk for gymnasium."""

    def __init__(self) -> None:
        real = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        number = gymnasium.spaces.Box(0, 1 << 40, (1,), np.int64)
        self.observation_space = gymnasium.spaces.Dict({"x": real, "identifier": real, "env_id": number})
        self.action_space = gymnasium.spaces.Discrete(2)

    def _observed(self) -> dict[str, Any]:
        numbers = {"x": np.array([self.x], np.float32), "identifier": np.array([self.identifier], np.float32)}
        return {**numbers, "env_id": np.array([self.env_id])}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.env_id = 0 if not options else int(options["env_id"])
        self.x, self.identifier = self.np_random.uniform(-1, 1), self.np_random.random()
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        self.x = np.float32(self.x) + np.float32(0.3 if action else -0.3)
        return self._observed(), float(self.x), bool(abs(self.x) > 1), False, {}


def wrapped_walk() -> EnvBase:
    env = GymWrapper(Walk(), categorical_action_encoding=True)
    env.env_info_spec = Composite(env_id=Unbounded((), dtype=torch.int64))
    return env


def walks(n: int = 4, native: bool = True) -> Any:
    """Return a factory of n walks of at most 100 steps."""
    one = MyEnv if native else wrapped_walk
    return lambda: SerialEnv(n, lambda: TransformedEnv(one(), StepCounter(100)))


def told(lengths: list[int]) -> TensorDict:
    ids = torch.arange(len(lengths))
    return TensorDict({"length": torch.tensor(lengths), "env_id": ids}, [len(lengths)])


def ids(name: str, n: int) -> TensorDict:
    return TensorDict({name: torch.arange(n)}, [n])


def make(workers: int, env: Any, policy: Any = None, **kwargs: Any) -> Any:
    if not workers:
        return Collector(env, policy, **kwargs)
    return MultiSyncDataCollector([env] * workers, policy, **kwargs)
