"""set_auto_unwrap_transformed_env."""

from __future__ import annotations

from contextlib import closing

import pytest

from steppe.batched import ParallelEnv
from steppe.transforms import (
    Compose,
    InitTracker,
    RewardSum,
    StepCounter,
    TransformedEnv,
    auto_unwrap_transformed_env,
    set_auto_unwrap_transformed_env,
)
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


def test_an_argument_precedes_the_context():
    with set_auto_unwrap_transformed_env(False):
        assert isinstance(nested().base_env, TransformedEnv)
        assert isinstance(nested(auto_unwrap=True).base_env, CountingEnv)
        with set_auto_unwrap_transformed_env(True):
            assert isinstance(nested().base_env, CountingEnv)
        assert not auto_unwrap_transformed_env()

    assert isinstance(nested().base_env, CountingEnv)
    assert auto_unwrap_transformed_env()


def test_a_function_can_be_decorated():
    @set_auto_unwrap_transformed_env(False)
    def make():
        return nested()

    assert isinstance(make().base_env, TransformedEnv)
    assert isinstance(nested().base_env, CountingEnv)


def test_unwrapping_is_set_by_call_or_environment_variable(monkeypatch):
    set_auto_unwrap_transformed_env(False).set()
    assert isinstance(nested().base_env, TransformedEnv)
    set_auto_unwrap_transformed_env(True).set()
    assert isinstance(nested().base_env, CountingEnv)
    monkeypatch.setenv("AUTO_UNWRAP_TRANSFORMED_ENV", "0")
    assert isinstance(nested().base_env, TransformedEnv)


def test_workers_decide_as_the_process_that_starts_them():
    def make():
        return CountingEnv(9, start=7 if isinstance(nested().base_env, TransformedEnv) else 1)

    with set_auto_unwrap_transformed_env(False), closing(ParallelEnv(1, make)) as env:
        assert env.reset()["observation"].item() == 7


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
