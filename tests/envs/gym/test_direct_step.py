"""Steps past gymnasium's wrappers that only look on are the steps of ``env.step``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from steppe_gym import GymWrapper  # noqa: E402
from steppe_gym.direct_step import direct_step  # noqa: E402


def _make(**kwargs: Any) -> Any:
    return gymnasium.make("CartPole-v1", max_episode_steps=12, **kwargs)


def _episodes(env: Any, step: Any, n_steps: int = 60) -> list[Any]:
    env.reset(seed=3)
    env.action_space.seed(3)
    found = []
    for _ in range(n_steps):
        observation, reward, terminated, truncated, _ = step(env.action_space.sample())
        found.append((observation.tolist(), reward, terminated, truncated))
        if terminated or truncated:
            found.append(env.reset()[0].tolist())
    return found


@pytest.mark.parametrize("unchecked", [False, True])
def test_episodes_are_those_of_env_step(unchecked: bool) -> None:
    ours, theirs = _make(disable_env_checker=unchecked), _make(disable_env_checker=unchecked)
    assert _episodes(ours, direct_step(ours)) == _episodes(theirs, theirs.step)


def test_what_only_looks_on_is_passed_by_once_an_episode_runs() -> None:
    env = _make()
    step, looked = direct_step(env), []
    env.env.step = lambda action: looked.append(action) or env.unwrapped.step(action)  # from now on it does more
    env.reset(seed=0)
    for action in (0, 1, 0):
        step(action)
    assert looked == [0, 1, 0]
    del env.env.step
    env.reset(seed=0)
    for action in (0, 1, 0):
        step(action)
    whole = type(env.env).step
    try:
        type(env.env).step = lambda self, action: pytest.fail("it was not passed by")
        step(1)
    finally:
        type(env.env).step = whole


def test_a_step_before_the_first_reset_is_the_error_of_the_library() -> None:
    step = direct_step(_make())
    with pytest.raises(gymnasium.error.ResetNeeded):
        step(0)


def test_steps_are_counted_where_the_time_limit_counts_them() -> None:
    env = _make()
    step = direct_step(env)
    env.reset(seed=0)
    for n in range(1, 5):
        step(n % 2)
        assert env._elapsed_steps == n
    env._max_episode_steps = 5
    assert step(0)[3]


def test_a_wrapper_that_is_put_in_between_is_asked_from_the_next_episode_on() -> None:
    class Half(gymnasium.RewardWrapper):
        def reward(self, reward: Any) -> float:
            return float(reward) / 2

    env = _make()
    step = direct_step(env)
    assert _episodes(env, step, 30)
    env.env.env = Half(env.env.env)
    env.reset(seed=0)
    assert [step(0)[1], step(1)[1]] == [0.5, 0.5]


def test_a_step_that_is_assigned_to_the_environment_is_taken() -> None:
    env = _make()
    wrapped = GymWrapper(env)
    wrapped.set_seed(0)
    wrapped.rollout(40, break_when_any_done=False)
    env.unwrapped.step = lambda action: (np.zeros(4, np.float32), 7.0, False, False, {})
    assert wrapped.rollout(5)["next", "reward"].flatten().tolist() == [7.0] * 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=-1),
        lambda: gymnasium.wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1)),
        lambda: gymnasium.make("CartPole-v1").unwrapped,
    ],
    ids=["no limit", "another wrapper", "none"],
)
def test_other_environments_step_as_they_are(make: Any) -> None:
    env = make()
    assert direct_step(env) == env.step
