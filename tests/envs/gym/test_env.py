"""GymEnv and GymWrapper as objects: arguments, attributes, seeds, rendering, the end."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from steppe.errors import ArgumentError, ClosedError  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def wrappers_of(env):
    while env is not env.unwrapped:
        yield type(env).__name__
        env = env.env


@pytest.mark.parametrize(("disable", "checked"), [(None, False), (True, False), (False, True)])
def test_the_librarys_checker_runs_on_request(disable, checked):
    env = GymEnv("CartPole-v1", disable_env_checker=disable)

    assert ("PassiveEnvChecker" in wrappers_of(env._env)) is checked
    assert env.rollout(2).shape == (2,)


def test_defaults_are_those_that_users_know():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(GymEnv).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }

    assert defaults["num_envs"] == 0
    assert defaults["categorical_action_encoding"] is False
    assert defaults["from_pixels"] is False
    assert all(defaults[name] is None for name in ("frame_skip", "device", "disable_env_checker"))


def test_arguments_are_split_between_the_library_and_envbase():
    env = GymEnv("CartPole-v1", max_episode_steps=3, sutton_barto_reward=True, allow_done_after_reset=True)
    data = env.rollout(10)

    assert data.shape == (3,)
    assert data["next", "reward"].flatten().tolist() == [0, 0, 0]


def test_unknown_attributes_come_from_the_library():
    env = GymEnv("CartPole-v1", max_episode_steps=7)

    assert env.spec.id == "CartPole-v1"
    assert env.unwrapped is env._env.unwrapped
    assert env.gravity == 9.8  # of the innermost environment, which the wrappers of gymnasium hide
    assert env._max_episode_steps == 7  # of a wrapper
    with pytest.raises(AttributeError, match="Neither GymEnv nor the environment in it has 'levity'"):
        _ = env.levity


def test_names_of_both_are_shown():
    assert repr(GymEnv("CartPole-v1")) == "GymEnv(CartPole-v1)"
    assert repr(GymEnv("CartPole-v1", 2)) == "GymEnv(CartPole-v1, batch_size=(2,))"
    assert repr(GymWrapper(gymnasium.make("CartPole-v1"))) == "GymWrapper(CartPole-v1)"


def test_a_seed_is_the_library_s_and_is_used_once():
    env, raw = GymEnv("CartPole-v1"), gymnasium.make("CartPole-v1")
    following = env.set_seed(4)

    np.testing.assert_array_equal(env.reset()["observation"].numpy(), raw.reset(seed=4)[0])
    np.testing.assert_array_equal(env.reset()["observation"].numpy(), raw.reset()[0])
    assert isinstance(following, int)
    assert env.set_seed(4, static_seed=True) == 4


def test_seed_none_comes_from_the_operating_system():
    """set_seed(None) does not continue from the last seed."""
    env, seeded = GymEnv("CartPole-v1"), GymEnv("CartPole-v1")
    for each in (env, seeded):
        each.set_seed(0)
        each.reset()
    env.set_seed(None)

    assert not torch.equal(env.reset()["observation"], seeded.reset()["observation"])


def test_options_of_a_reset_reach_the_library():
    env, raw = GymEnv("CartPole-v1"), gymnasium.make("CartPole-v1")
    env.set_seed(0)
    options = {"low": 0.2, "high": 0.3}

    found = env.reset(options=options)["observation"]
    np.testing.assert_array_equal(found.numpy(), raw.reset(seed=0, options=options)[0])


@pytest.mark.parametrize("kwargs", [{"seed": 1}, {"nonsense": 1}])
def test_other_arguments_of_a_reset_are_refused(kwargs):
    for env in (GymEnv("CartPole-v1"), GymEnv("CartPole-v1", 2)):
        with pytest.raises(TypeError, match=r"reset takes no seed. To seed|takes only 'options', found \['nonsense'\]"):
            env.reset(**kwargs)


@pytest.mark.parametrize("frame_skip", [0, -1, 1.5, True])
def test_an_invalid_frame_skip_is_refused(frame_skip):
    with pytest.raises(ArgumentError, match="whole number >= 1"):
        GymEnv("CartPole-v1", frame_skip=frame_skip)


@pytest.mark.parametrize("num_envs", [-1, 1.5, True])
def test_an_invalid_num_envs_is_refused(num_envs):
    with pytest.raises(ValueError, match="num_envs must be an integer >= 0"):
        GymEnv("CartPole-v1", num_envs)


def test_closing_closes_the_library_s_environment():
    class Closing(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1)
        action_space = gymnasium.spaces.Discrete(2)
        closed = 0

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def close(self):
            self.closed += 1

    raw = Closing()
    env = GymWrapper(raw)
    env.close()

    assert (raw.closed, env.is_closed) == (1, True)
    with pytest.raises(ClosedError, match="make a new environment"):
        env.reset()


def test_data_is_on_the_requested_device():
    data = GymEnv("CartPole-v1", device="cpu").rollout(2)

    assert data.device == torch.device("cpu")
    assert GymEnv("CartPole-v1").rollout(2).device is None
