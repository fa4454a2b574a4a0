"""Values of a reset: options of the library's reset, and attributes of its environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("gymnasium")
pytest.importorskip("steppe_agents")

import gymnasium

from steppe import Collector, ParallelEnv, PolicyBank, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import ArgumentError, InfoError, NotSupported, SpecError
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


def plain() -> Any:
    return GymWrapper(wrapped())


def batch() -> Any:
    return SerialEnv(2, plain)


@pytest.mark.parametrize(
    ("env", "workers"),
    [
        pytest.param(plain, 0, id="single"),
        pytest.param(batch, 0, id="batch"),
        pytest.param(lambda: ParallelEnv(2, plain), 0, id="processes"),
        pytest.param(lambda: TransformedEnv(batch(), StepCounter()), 0, id="transformed"),
        pytest.param(plain, 2, id="workers"),
        pytest.param(batch, 2, id="workers with batches"),
    ],
)
def test_the_first_request_decides_which_options_there_are(env: Any, workers: int) -> None:
    """Names, shapes and dtypes of undeclared infos are those of the first request, before which others have run."""
    with Collector(env, num_workers=workers) as collector:
        assert set(collector.execute(n_episodes=3).result().steps["observation"][..., 2].flatten().tolist()) == {-1}
        found = collector.execute(env_info={"start": [4.0, 5.5, 6.0, 7.0, 8.0]}).result()
        assert found.steps["observation"][:, 0, 2].tolist() == [4, 5.5, 6, 7, 8]
        assert found.env_info["start"].tolist() == [4, 5.5, 6, 7, 8]
        for wrong, error, text in [
            ({"begin": [4.0]}, InfoError, r"must have \['start'\].*found \['begin'\]"),
            ({"start": [4]}, SpecError, r"'start'.*dtype torch.float32, found torch.int64"),
            (
                TensorDict({"start": torch.zeros(2, 3)}, [2]),
                SpecError,
                r"'start'.*shape \(\).*found \(3,\)",
            ),
        ]:
            with pytest.raises(error, match=text):
                collector.execute(env_info=wrong)
        collector.reset(env_info={"start": [2.5]})
        assert set(collector.execute(n_steps=1).result().steps["observation"][:, 0, 2].tolist()) == {2.5}


@pytest.mark.parametrize(("env", "workers"), [(plain, 0), (batch, 0), (batch, 2)])
def test_a_reset_may_be_the_first_request(env: Any, workers: int) -> None:
    """Its values hold in slices, and in batches too."""
    with Collector(env, num_workers=workers, frames_per_batch=8) as collector:
        n = (2 if env is batch else 1) * max(workers, 1)
        collector.reset(env_info={"start": [1.5 + lane for lane in range(n)]})
        expected = [1.5 + lane for lane in range(n)]
        assert next(collector)["observation"][..., 2].reshape(n, -1)[:, 0].tolist() == expected
        collector.reset(env_info={"start": [2.5 + lane for lane in range(n)]})
        found = collector.execute(n_steps=1).result()
        assert found.steps["observation"][:, 0, 2].tolist() == [2.5 + lane for lane in range(n)]


@pytest.mark.parametrize("workers", [0, 2])
def test_attributes_may_be_named_by_the_first_request(workers: int) -> None:
    def make() -> Any:
        return SerialEnv(2, lambda: GymWrapper(wrapped(), env_info_to="attributes"))

    with Collector(make, num_workers=workers) as collector:
        with pytest.raises(SpecError, match=r"no attribute 'weight'. Numbers that it has: \['count', 'size'"):
            collector.execute(env_info={"weight": [1.0, 2.0]})
        found = collector.execute(env_info={"count": [3, 4, 5]}).result()
        assert found.steps["observation"][:, 0, :2].tolist() == [[0.5, 3], [0.5, 4], [0.5, 5]]


def test_tables_may_be_the_first_request() -> None:
    """The shape of an attribute is known, so a dict may hold a table; options need a TensorDict for that."""
    ids = {"policy_id": torch.arange(3).unsqueeze(1)}
    bank = PolicyBank({n: lambda td, n=n: td.set("action", torch.eye(2)[[n % 2] * len(td)] > 0) for n in range(3)})
    with Collector(SerialEnv(2, lambda: GymWrapper(wrapped(), env_info_to="attributes")), bank) as collector:
        found = collector.execute(agent_info=ids, env_info={"size": torch.tensor([[1.5, 2.5, 3.5, 4.5]])}).result()
        assert found.steps["observation"][:, :, 0, 0].tolist() == [[1.5, 2.5, 3.5, 4.5]] * 3
    with Collector(batch(), bank) as collector:
        infos = TensorDict({"start": torch.tensor([[1.5, 2.5, 3.5, 4.5]])}, [1, 4])
        found = collector.execute(agent_info=ids, env_info=infos).result()
        assert found.steps["observation"][:, :, 0, 2].tolist() == [[1.5, 2.5, 3.5, 4.5]] * 3
        with pytest.raises(SpecError, match=r"at least one row, found infos of shape \(0,\)"):
            collector.execute(agent_info=bank.select([1]), env_info={"start": torch.zeros(0)})


def test_a_refused_first_request_decides_nothing() -> None:
    with Collector(batch()) as collector:
        with pytest.raises(SpecError, match="env_info has 2 rows, but n_episodes is 3"):
            collector.execute(3, env_info={"begin": [1, 2]})
        with pytest.raises(SpecError, match=r"flat, one value for each name, but the request nests \['goal'\]"):
            collector.execute(env_info={"goal": {"x": [1.0, 2.0]}})
        assert collector.execute(env_info={"start": [3.5, 4.5]}).result().steps["observation"][1, 0, 2] == 4.5


def test_an_environment_by_name_takes_its_attributes() -> None:
    env = GymEnv("CartPole-v1", env_info=["length", "gravity"], env_info_to="attributes")
    env.reset(env_info={"length": 1.25, "gravity": 3.5})
    unwrapped = env._env.unwrapped
    assert (unwrapped.length, unwrapped.gravity) == (1.25, 3.5)


def test_values_that_cannot_be_inferred_are_refused() -> None:
    with pytest.raises(SpecError, match=r"no attribute 'sized'. Numbers that it has: \['count', 'size', 'start'\]"):
        GymWrapper(wrapped(), env_info=["sized"], env_info_to="attributes")
    with pytest.raises(ArgumentError, match="Pass an example of each"):
        GymWrapper(wrapped(), env_info=["start"])
    with pytest.raises(ArgumentError, match="'options' or 'attributes', found 'goals'"):
        GymWrapper(wrapped(), env_info={"start": 1.0}, env_info_to="goals")  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match="vector environments take no env_info"):
        GymEnv("CartPole-v1", 2, env_info=["length"], env_info_to="attributes")
    with (
        Collector(GymEnv("CartPole-v1", 2)) as collector,
        pytest.raises(NotSupported, match="vector environments take no env_info"),
    ):
        collector.execute(env_info={"low": [0.0]})
