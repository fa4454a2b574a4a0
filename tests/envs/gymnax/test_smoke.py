"""The shortest way through steppe-gymnax."""

from __future__ import annotations

import pytest

pytest.importorskip("gymnax")

from steppe import check_env_specs, make_env
from steppe.errors import EnvNotFound, NotSupported, SpecError
from steppe_gymnax import GymnaxEnv, GymnaxWrapper

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def test_environments_are_made_by_their_names():
    env = make_env("gymnax:CartPole-v1", batch_size=3)

    check_env_specs(env, seed=0)
    assert env.rollout(4).batch_size == (3, 4)


def test_a_wrong_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'CartPole-v1'"):
        make_env("gymnax:CartPole-v0")


def test_an_unknown_parameter_is_named():
    with pytest.raises(SpecError, match=r"no parameters \['max_steps'\].*max_steps_in_episode"):
        GymnaxEnv("CartPole-v1", env_params={"max_steps": 3})


def test_other_objects_are_refused():
    with pytest.raises(NotSupported, match="reset_env"):
        GymnaxWrapper(object())


def test_names_are_listed():
    assert {"CartPole-v1", "Breakout-MinAtar"} <= set(GymnaxEnv.available_envs)
    assert "SimpleBandit-bsuite" not in GymnaxEnv.available_envs
    for name, reason in (("SimpleBandit-bsuite", "own reset"), ("MNISTBandit-bsuite", "downloads MNIST")):
        with pytest.raises(NotSupported, match=reason):
            GymnaxEnv(name)
