"""Nested TransformedEnvs are joined."""

from __future__ import annotations

import pytest

from steppe.transforms import Compose, InitTracker, RewardSum, StepCounter, TransformedEnv
from steppe_testing import CountingEnv


@pytest.fixture(autouse=True)
def undecided(monkeypatch):
    monkeypatch.delenv("AUTO_UNWRAP_TRANSFORMED_ENV", raising=False)


def nested(**kwargs):
    return TransformedEnv(TransformedEnv(CountingEnv(3), StepCounter()), RewardSum(), **kwargs)


def names(env):
    return [type(part).__name__ for part in env.transform]


def test_transformed_environments_are_unwrapped_by_default():
    assert names(nested()) == ["StepCounter", "RewardSum"]
    assert isinstance(nested(auto_unwrap=False).base_env, TransformedEnv)


def test_an_environment_variable_keeps_them_apart(monkeypatch):
    monkeypatch.setenv("AUTO_UNWRAP_TRANSFORMED_ENV", "0")

    assert isinstance(nested().base_env, TransformedEnv)
    assert isinstance(nested(auto_unwrap=True).base_env, CountingEnv)


def test_a_subclass_is_not_unwrapped():
    class Mine(TransformedEnv):
        pass

    assert type(TransformedEnv(Mine(CountingEnv(3), StepCounter()), RewardSum()).base_env) is Mine
    assert type(Mine(TransformedEnv(CountingEnv(3), StepCounter()), RewardSum()).base_env) is TransformedEnv


def test_joined_chains_leave_the_inner_environment_unchanged():
    """Chains are joined in the outer environment; the inner one keeps its chain."""
    inner = TransformedEnv(CountingEnv(3), Compose(StepCounter(), Compose(InitTracker())))
    outer = TransformedEnv(inner, Compose(RewardSum()))

    assert names(outer) == ["StepCounter", "Compose", "RewardSum"]
    assert names(inner) == ["StepCounter", "Compose"]
    assert inner.transform[0].container is inner
    assert all(part.container is outer for part in outer.transform)
    assert names(TransformedEnv(inner)) == ["StepCounter", "Compose"]
    inner.check_env_specs()
    outer.check_env_specs()
