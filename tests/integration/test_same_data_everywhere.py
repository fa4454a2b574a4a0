"""One seed and one list of actions give one data set, whichever class runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

from steppe import EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv, make_env
from steppe_testing import assert_equal_data

N, STEPS, SEED = 3, 70, 11


def batch(kind: type, where: str, max_steps: int | None) -> EnvBase:
    def inside() -> EnvBase:
        return TransformedEnv(make_env("gym:CartPole-v1"), StepCounter(max_steps=max_steps))

    if where == "inside":
        return kind(N, inside)
    return TransformedEnv(kind(N, "gym:CartPole-v1"), StepCounter(max_steps=max_steps))


def given_actions(env: EnvBase, steps: int = STEPS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return list(env.full_action_spec.rand((steps,), generator=generator)["action"].unbind(0))


def play(env: EnvBase) -> TensorDictBase:
    with closing(env):
        env.set_seed(SEED)
        return env.rollout(STEPS, actions=given_actions(env), break_when_any_done=False)


@pytest.mark.parametrize("max_steps", [None, 6], ids=["ended by the environment", "ended by StepCounter"])
def test_batches_agree_with_transforms_inside_and_outside(max_steps: int | None) -> None:
    """Serial and parallel batches with transforms in or around them agree."""
    reference = play(batch(SerialEnv, "inside", max_steps))

    ended = reference["next", "done"].sum(1)
    assert (ended >= 2).all(), "episodes must end for the comparison to say anything"
    assert reference["step_count"].max() == (reference["next", "step_count"].max() - 1)
    for kind, where in ((SerialEnv, "outside"), (ParallelEnv, "inside"), (ParallelEnv, "outside")):
        assert_equal_data(reference, play(batch(kind, where, max_steps)))


def raw_loop(name: str, seed: int, actions: list[Any]) -> Iterator[dict[str, Any]]:
    env = gymnasium.make(name)
    observation, _ = env.reset(seed=seed)
    for action in actions:
        following, reward, terminated, truncated, _ = env.step(action)
        yield {
            "observation": observation,
            "next": following,
            "reward": np.float32(reward),
            "terminated": terminated,
            "truncated": truncated,
        }
        observation = env.reset()[0] if terminated or truncated else following
    env.close()


def assert_is_raw(data: TensorDictBase, raw: list[dict[str, Any]]) -> None:
    for t, row in enumerate(raw):
        np.testing.assert_array_equal(data["observation"][t].numpy(), row["observation"])
        np.testing.assert_array_equal(data["next", "observation"][t].numpy(), row["next"])
        assert data["next", "reward"][t].item() == row["reward"]
        assert data["next", "terminated"][t].item() == row["terminated"]
        assert data["next", "truncated"][t].item() == row["truncated"]


def by_rollout(env: EnvBase, actions: list[torch.Tensor]) -> TensorDictBase:
    return env.rollout(len(actions), actions=actions, break_when_any_done=False)


def by_steps(env: EnvBase, actions: list[torch.Tensor]) -> TensorDictBase:
    td, steps = env.reset(), []
    for action in actions:
        td["action"] = action
        step, td = env.step_and_maybe_reset(td)
        steps.append(step)
    return torch.stack(steps, len(env.batch_size))


@pytest.mark.parametrize("way", [by_rollout, by_steps])
def test_one_environment_gives_the_data_of_the_raw_loop(way: Callable[..., TensorDictBase]) -> None:
    env = make_env("gym:CartPole-v1")
    actions = given_actions(env, 1000)

    env.set_seed(SEED)
    data = way(env, actions)

    raw = list(raw_loop("CartPole-v1", SEED, [int(action.argmax()) for action in actions]))
    assert sum(row["terminated"] for row in raw) > 20
    assert_is_raw(data, raw)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
@pytest.mark.parametrize("way", [by_rollout, by_steps])
def test_a_batch_gives_what_the_raw_loops_give(kind: type, way: Callable[..., TensorDictBase]) -> None:
    with closing(kind(N, "gym:CartPole-v1")) as env:
        actions = given_actions(env, 200)
        env.set_seed(SEED)

        data = way(env, actions)

        seed = SEED
        for row in range(N):
            assert_is_raw(
                data[row], list(raw_loop("CartPole-v1", seed, [int(action[row].argmax()) for action in actions]))
            )
            seed = make_env("gym:CartPole-v1").set_seed(seed)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_random_actions_of_one_seed_are_the_same_in_every_class(kind: type) -> None:
    def random_data(env: EnvBase) -> TensorDictBase:
        with closing(env):
            env.set_seed(SEED)
            return env.rollout(300, break_when_any_done=False)

    assert_equal_data(random_data(SerialEnv(N, "gym:Pendulum-v1")), random_data(kind(N, "gym:Pendulum-v1")))


def test_a_single_env_draws_the_actions_of_a_batch_of_one() -> None:
    single, many = make_env("gym:CartPole-v1"), SerialEnv(1, "gym:CartPole-v1")
    single.set_seed(SEED)
    many.set_seed(SEED)

    assert_equal_data(single.rollout(200, break_when_any_done=False), many.rollout(200, break_when_any_done=False)[0])
