"""Resets of some rows: rows that are not reset keep what the environment last returned for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import (
    EnvBase,
    InitTracker,
    ParallelEnv,
    RewardSum,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    TransformedEnv,
)
from steppe.errors import SpecError
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, TextCountingEnv
from tests.core.envs.counting import ones


def transformed(env: EnvBase) -> TransformedEnv:
    return TransformedEnv(env, StepCounter(), RewardSum(), InitTracker())


CLASSES: dict[str, Callable[[], Any]] = {
    "a batch of its own": lambda: CountingEnv(9, batch_size=(3,)),
    "SerialEnv of arrays": lambda: SerialEnv(3, lambda: ArrayCountingEnv(9)),
    "SerialEnv": lambda: SerialEnv(3, lambda: CountingEnv(9)),
    "ParallelEnv": lambda: ParallelEnv(3, lambda: ArrayCountingEnv(9), num_processes=1),
    "transforms around a batch": lambda: transformed(SerialEnv(3, lambda: ArrayCountingEnv(9))),
    "transforms around TensorDicts": lambda: transformed(CountingEnv(9, batch_size=(3,))),
    "transforms in a batch": lambda: SerialEnv(3, lambda: transformed(ArrayCountingEnv(9))),
    "nested transforms": lambda: TransformedEnv(
        transformed(SerialEnv(3, lambda: CountingEnv(9))), StepCounter(step_count_key="n"), auto_unwrap=False
    ),
    "text": lambda: SerialEnv(3, lambda: TextCountingEnv(9)),
}
MASK = torch.tensor([[False], [True], [False]])


def masked() -> TensorDict:
    return TensorDict({"_reset": MASK.clone()}, [3])


def stepped(env: Any, steps: int, together: bool) -> Any:
    """Step and return the last root, or what ``step_and_maybe_reset`` makes of it."""
    root = env.reset()
    for _ in range(steps):
        if together:
            _, root = env.step_and_maybe_reset(ones(root))
        else:
            root = env.step_mdp(env.step(ones(root)))
    return root


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_rows_without_a_reset_keep_their_last_values(name: str, together: bool) -> None:
    with CLASSES[name]() as env, CLASSES[name]() as told:
        root = stepped(env, 4, together)
        expected = told.reset(stepped(told, 4, together).exclude("action").set("_reset", MASK.clone()))
        found = env.reset(masked())

        assert found["observation"].squeeze(-1).tolist() == [4, 0, 4]
        keys = {*expected.keys(True, True)} - {"action"}
        assert keys == set(found.keys(True, True))
        assert (found.select(*keys) == expected.select(*keys)).all()
        again = env.step(ones(found))["next"]
        assert (again == told.step(ones(expected))["next"]).all()
        assert again["observation"].squeeze(-1).tolist() == [5, 1, 5]
        assert root["observation"].squeeze(-1).tolist() == [4, 4, 4]  # the caller's data is not written to


@pytest.mark.parametrize("name", CLASSES)
def test_two_resets_of_some_rows_follow_each_other(name: str) -> None:
    with CLASSES[name]() as env:
        stepped(env, 2, False)
        env.reset(masked())
        found = env.reset(TensorDict({"_reset": torch.tensor([[True], [False], [False]])}, [3]))

        assert found["observation"].squeeze(-1).tolist() == [0, 0, 2]


@pytest.mark.parametrize("name", CLASSES)
def test_values_in_the_data_of_a_reset_count(name: str) -> None:
    with CLASSES[name]() as env:
        stepped(env, 3, False)
        found = env.reset(masked().set("observation", torch.full((3, 1), 40.0)))

        assert found["observation"].squeeze(-1).tolist() == [40, 0, 40]
        assert not found["done"].any()


def collect(env: Any) -> None:
    next(iter(SyncDataCollector(env, ones, frames_per_batch=6, total_frames=-1)))


UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "before the first reset": lambda env: None,
    "steps of some rows": lambda env: env.step_at(ones(env.reset())[:2], [0, 1]),
    "a collector": collect,
    "transforms around it": lambda env: TransformedEnv(env, StepCounter()).step(ones(transformed(env).reset())),
}


@pytest.mark.parametrize("use", UNKNOWN)
@pytest.mark.parametrize("name", ["a batch of its own", "SerialEnv of arrays"])
def test_unknown_data_of_other_rows_is_an_error(name: str, use: str) -> None:
    with CLASSES[name]() as env:
        UNKNOWN[use](env)

        with pytest.raises(
            SpecError, match=r"environments that are not reset keep .*'observation'.* Pass the whole root"
        ):
            env.reset(masked())


def test_a_reset_of_no_row_returns_the_last_data() -> None:
    for env in (CountingEnv(9), ArrayCountingEnv(9), transformed(ArrayCountingEnv(9))):
        stepped(env, 3, False)
        found = env.reset(TensorDict({"_reset": torch.tensor([False])}, []))

        assert found["observation"].tolist() == [3.0]


def test_a_rollout_leaves_its_last_data() -> None:
    with SerialEnv(3, lambda: ArrayCountingEnv(9)) as env:
        env.rollout(5, ones)

        assert env.reset(masked())["observation"].squeeze(-1).tolist() == [5, 0, 5]


def test_agents_that_go_on_keep_their_last_values() -> None:
    env = NestedCountingEnv(9, spread=3, batch_size=(2,))
    root = env.reset()
    for _ in range(2):
        root = env.step_mdp(env.step(env.rand_action(root)))
    done = root["agents", "done"]
    mask = torch.zeros_like(done)
    mask[0, 0] = True
    kept = root["agents", "observation"].clone()
    found = env.reset(TensorDict({"agents": TensorDict({"_reset": mask}, [2, *done.shape[1:-1]])}, [2]))

    assert torch.equal(found["agents", "observation"][~mask.squeeze(-1)], kept[~mask.squeeze(-1)])
    assert float(found["agents", "observation"][0, 0].sum()) == 0.0


@pytest.mark.parametrize("make", [partial(CountingEnv, 9, batch_size=(3,)), partial(SerialEnv, 3, CountingEnv)])
def test_rows_left_out_of_a_step_keep_their_last_values(make: Callable[[], Any]) -> None:
    with make() as env:
        stepped(env, 2, False)
        action = ones(TensorDict({}, [3])).set("_step", torch.tensor([True, False, True]))
        following = env.step(action)["next"]

        assert following["observation"].squeeze(-1).tolist() == [3, 2, 3]
