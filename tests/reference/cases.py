"""The recorded environments, chains of transforms, and their combinations.

An environment is a function of the row that it is in a batch: rows end at different times. Everything here is found by
name, so that a worker process can make it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from tensordict import TensorDictBase

from steppe import EnvBase, make_env
from steppe.specs import Unbounded
from steppe.transforms import (
    Compose,
    ConditionalSkip,
    DoubleToFloat,
    ExcludeTransform,
    InitTracker,
    ObservationTransform,
    RenameTransform,
    RewardSum,
    StepCounter,
    TensorDictPrimer,
    Transform,
    TransformedEnv,
    apply_to_composite,
    apply_to_composite_inv,
)
from steppe_gym import GymWrapper
from steppe_testing import (
    ArrayCountingEnv,
    AutoResettingCountingEnv,
    CountingEnv,
    DynamicSpecEnv,
    EchoEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    PlaceEnv,
    StatelessCountingEnv,
    TextCountingEnv,
)

__all__ = ["CASES", "CHAINS", "ENVIRONMENTS", "N", "make"]

N = 3  # rows of a batch
LENGTHS = (6, 5, 3)  # steps of an episode, by row


class Stall(gymnasium.Env):
    """Observes a dict with a dict and a tuple in it; seeded numbers, and an end after six to nine steps."""

    observation_space = gymnasium.spaces.Dict(
        {
            "place": gymnasium.spaces.Box(-1, 1, (2,), np.float64),
            "inner": gymnasium.spaces.Dict(
                {"level": gymnasium.spaces.Discrete(4), "lamps": gymnasium.spaces.MultiBinary(3)}
            ),
            "pair": gymnasium.spaces.Tuple(
                (gymnasium.spaces.Discrete(3, start=1), gymnasium.spaces.Box(0, 9, (1,), np.float32))
            ),
        }
    )
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def _observe(self) -> dict[str, Any]:
        draw = self.np_random
        return {
            "place": draw.uniform(-1, 1, 2),
            "inner": {"level": int(draw.integers(4)), "lamps": draw.integers(0, 2, 3).astype(np.int8)},
            "pair": (1 + int(draw.integers(3)), np.array([self.steps], np.float32)),
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.length = 0, int(self.np_random.integers(6, 10))
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observe(), float(action[0] - action[1]), self.steps >= self.length, self.steps == 8, {}


ENVIRONMENTS: dict[str, Callable[[int], EnvBase]] = {
    "cartpole": lambda row: make_env("gym:CartPole-v1"),
    "pendulum": lambda row: make_env("gym:Pendulum-v1", max_episode_steps=7 + row),
    "frozen lake": lambda row: make_env("gym:FrozenLake-v1"),
    "blackjack": lambda row: make_env("gym:Blackjack-v1", categorical_action_encoding=True),
    "dict": lambda row: GymWrapper(Stall()),
    "arrays": lambda row: ArrayCountingEnv(LENGTHS[row], dtype=torch.float64, noise=True, info=True),
    "nested arrays": lambda row: ArrayCountingEnv(
        LENGTHS[row], nested=True, actions=True, action="continuous", pixels=(2, 3), truncate=True
    ),
    "arrays with env_info": lambda row: ArrayCountingEnv(LENGTHS[row], env_info=True, action="categorical"),
    "tensordicts": lambda row: CountingEnv(LENGTHS[row], dtype=torch.float64, noise=True),
    "tensordicts with env_info": lambda row: CountingEnv(LENGTHS[row], env_info=True, action="multi_one_hot"),
    "state in the data": lambda row: StatelessCountingEnv(LENGTHS[row]),
    "group": lambda row: NestedCountingEnv(LENGTHS[row], spread=1),
    "agents": lambda row: MultiAgentCountingEnv(LENGTHS[row]),
    "agents that end before all": lambda row: NestedResetEnv(LENGTHS[row]),
    "groups": lambda row: MultiKeyCountingEnv(),
    "different agents": lambda row: HeterogeneousCountingEnv(LENGTHS[row]),
    "text": lambda row: TextCountingEnv(LENGTHS[row]),
    "text as action": lambda row: EchoEnv(),
    "growing": lambda row: DynamicSpecEnv(LENGTHS[row]),
    "tensorclass": lambda row: PlaceEnv(LENGTHS[row]),
    "metadata": lambda row: MetadataEnv(max_steps=LENGTHS[row]),
    "batch of two": lambda row: CountingEnv(LENGTHS[row], batch_size=(2,), noise=True),
    "resets itself": lambda row: AutoResettingCountingEnv(LENGTHS[row]),
}


# -- transforms


class Shifted(ObservationTransform):
    """A transform in third-party style: replaces the observation by itself plus 0.5."""

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value + 0.5


class Widened(ObservationTransform):
    """A transform that writes the observation and its negative to a new entry."""

    def __init__(self) -> None:
        super().__init__(["observation"], ["wide"])

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return torch.cat([value, -value], -1)

    @apply_to_composite
    def transform_observation_spec(self, spec: Any) -> Any:
        return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)


class Halved(Transform):
    """The caller gives twice the action."""

    def __init__(self) -> None:
        super().__init__(in_keys_inv=["action"])

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value / 2

    @apply_to_composite_inv
    def transform_action_spec(self, spec: Any) -> Any:
        return Unbounded(spec.shape, dtype=spec.dtype)


class Smoothed(Transform):
    """A transform that averages the observation with the last one, with state in data."""

    def transform_observation_spec(self, spec: Any) -> Any:
        spec = spec.clone()
        spec["smooth"] = Unbounded(spec["observation"].shape, dtype=spec["observation"].dtype)
        return spec

    def transform_state_spec(self, spec: Any) -> Any:
        spec = spec.clone()
        observation = self.parent.full_observation_spec["observation"]
        spec["smooth"] = Unbounded(observation.shape, dtype=observation.dtype)
        return spec

    def _reset(self, tensordict: Any, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return tensordict_reset.set("smooth", tensordict_reset["observation"].clone())

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        smooth = 0.5 * tensordict["smooth"] + 0.5 * next_tensordict["observation"]
        return next_tensordict.set("smooth", smooth.to(tensordict["smooth"].dtype))


def twice(data: TensorDictBase) -> TensorDictBase:
    """A function as a transform."""
    return data.set("twice", 2 * data["observation"])


def ended(data: TensorDictBase) -> TensorDictBase:
    """A function that ends an episode."""
    over = data["observation"] >= 4
    return data.update({"done": data["done"] | over, "truncated": data["truncated"] | over})


def takes_the_first(data: TensorDictBase) -> torch.Tensor:
    """Whether the action is the first one."""
    first: torch.Tensor = data["action"][..., 0].bool()
    return first


CHAINS: dict[str, Callable[[], Any]] = {
    "StepCounter": lambda: StepCounter(),
    "StepCounter(4)": lambda: StepCounter(4),
    "RewardSum": lambda: RewardSum(),
    "InitTracker": lambda: InitTracker(),
    "DoubleToFloat": lambda: DoubleToFloat(),
    "RenameTransform": lambda: RenameTransform(["observation"], ["seen"]),
    "ExcludeTransform": lambda: ExcludeTransform("noise"),
    "TensorDictPrimer": lambda: TensorDictPrimer(hidden=Unbounded((2,)), default_value=3.0),
    "TensorDictPrimer(random)": lambda: TensorDictPrimer(hidden=Unbounded((2,)), random=True),
    "a function": lambda: twice,
    "a function that ends": lambda: ended,
    "ConditionalSkip": lambda: Compose(ConditionalSkip(takes_the_first), StepCounter(4)),
    "another shape": lambda: Widened(),
    "another value": lambda: Shifted(["observation"]),
    "an inverse": lambda: Halved(),
    "memory": lambda: Smoothed(),
    "counted": lambda: Compose(RewardSum(), StepCounter(4), InitTracker()),
    "three": lambda: Compose(RewardSum(), StepCounter(), DoubleToFloat()),
}

_POOL: list[Callable[[], Any]] = [
    RewardSum,
    partial(StepCounter, 4),
    InitTracker,
    DoubleToFloat,
    partial(RenameTransform, ["observation"], ["seen"], create_copy=True),
    partial(TensorDictPrimer, hidden=Unbounded((2,)), default_value=3.0),
    lambda: twice,
    Widened,
    partial(Shifted, ["observation"]),
    Smoothed,
]


def _in_random_order(number: int) -> Compose:
    drawn = random.Random(number)
    return Compose(*(make() for make in drawn.sample(_POOL, drawn.randint(3, len(_POOL)))))


ORDERS = [f"order {number}" for number in range(8)]
CHAINS.update({name: partial(_in_random_order, number) for number, name in enumerate(ORDERS)})


def make(name: str, chain: str | None, row: int) -> EnvBase:
    """Make the environment of a row, with a chain of transforms or without."""
    env = ENVIRONMENTS[name](row)
    return env if chain is None else TransformedEnv(env, CHAINS[chain]())


_ALL = [name for name in CHAINS if name != "an inverse"]
_NO_NOISE = ("ExcludeTransform", "ConditionalSkip")  # need an entry, or an action, that others have not

#: Names of an environment and of its chain; None is an environment without transforms.
CASES: list[tuple[str, str | None]] = [
    *((name, None) for name in ENVIRONMENTS),
    *((name, "counted") for name in ENVIRONMENTS),
    *(("arrays", chain) for chain in _ALL if chain != "counted"),
    *(("tensordicts", chain) for chain in _ALL if chain not in ("counted", *ORDERS[4:])),
    *(("cartpole", chain) for chain in _ALL if chain not in ("counted", *_NO_NOISE, "a function that ends")),
    *(("pendulum", chain) for chain in ("three", "an inverse")),
    *(("text", chain) for chain in ("three", "another shape", ORDERS[0])),
]
