"""Values of a reset: options of the library's reset, and attributes of its environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gymnasium")
pytest.importorskip("steppe_agents")

import gymnasium

from steppe import Collector, ParallelEnv, SerialEnv
from steppe.errors import ArgumentError, NotSupported, SpecError
from steppe_gym import GymEnv, GymWrapper


class Sized(gymnasium.Env):  # type: ignore[type-arg]
    """Shows its options and attributes."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.size, self.count, self.start = 0.5, 2, 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.start = (options or {}).get("start", -1.0)
        assert (type(self.size), type(self.count)) == (float, int)
        return np.array([self.size, self.count, self.start], np.float32), {}

    def step(self, action: Any) -> Any:
        return np.array([self.size, self.count, self.start], np.float32), 0.0, True, False, {}


def wrapped() -> Any:
    return gymnasium.wrappers.TimeLimit(Sized(), 5)


def by_attributes() -> Any:
    return GymWrapper(wrapped(), env_info=["size", "count"], env_info_to="attributes")


def test_a_reset_sets_attributes_of_the_environment() -> None:
    env = by_attributes()
    assert {key: (leaf.dtype, leaf.shape) for key, leaf in env.env_info_spec.items()} == {
        "size": (torch.float32, ()),
        "count": (torch.int64, ()),
    }
    assert env.reset(env_info={"size": 2.5, "count": 7})["observation"].tolist() == [2.5, 7, -1]
    assert env.reset()["observation"].tolist() == [2.5, 7, -1], "without values they stay"


@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
def test_attributes_answer_requests_row_by_row(make: Any) -> None:
    with Collector(make(2, by_attributes)) as collector:
        found = collector.execute(env_info={"size": [1.5, 2.5, 3.5, 4.5], "count": [1, 2, 3, 4]}).result()
    assert found.steps["observation"][:, 0, :2].tolist() == [[1.5, 1], [2.5, 2], [3.5, 3], [4.5, 4]]


def test_options_take_the_spec_of_their_examples() -> None:
    env = SerialEnv(2, lambda: GymWrapper(wrapped(), env_info={"start": 0.0}))
    with Collector(env) as collector:
        found = collector.execute(env_info={"start": [4.0, 5.0, 6.0]}).result()
    assert found.steps["observation"][:, 0, 2].tolist() == [4, 5, 6]
    env.close()


def test_an_environment_by_name_takes_its_attributes() -> None:
    env = GymEnv("CartPole-v1", env_info=["length", "gravity"], env_info_to="attributes")
    env.reset(env_info={"length": 1.25, "gravity": 3.5})
    unwrapped = env._env.unwrapped
    assert (unwrapped.length, unwrapped.gravity) == (1.25, 3.5)


def test_values_that_cannot_be_inferred_are_refused() -> None:
    with pytest.raises(SpecError, match=r"no attribute 'sized'. Numbers that it has: \['count', 'size', 'start'\]"):
        GymWrapper(wrapped(), env_info=["sized"], env_info_to="attributes")
    with pytest.raises(ArgumentError, match="needs their names"):
        GymWrapper(wrapped(), env_info_to="attributes")
    with pytest.raises(ArgumentError, match="Pass an example of each"):
        GymWrapper(wrapped(), env_info=["start"])
    with pytest.raises(ArgumentError, match="'options' or 'attributes', found 'goals'"):
        GymWrapper(wrapped(), env_info={"start": 1.0}, env_info_to="goals")  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match="vector environments take no env_info"):
        GymEnv("CartPole-v1", 2, env_info=["length"], env_info_to="attributes")
