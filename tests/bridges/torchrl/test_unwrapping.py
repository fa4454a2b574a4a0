"""set_auto_unwrap_transformed_env."""

from __future__ import annotations

from contextlib import closing

import pytest

pytest.importorskip("torchrl")

from steppe.batched import ParallelEnv
from steppe.transforms import RewardSum, StepCounter, TransformedEnv
from steppe_testing import CountingEnv
from steppe_torchrl.names import auto_unwrap_transformed_env, set_auto_unwrap_transformed_env


@pytest.fixture(autouse=True)
def undecided(monkeypatch):
    monkeypatch.delenv("AUTO_UNWRAP_TRANSFORMED_ENV", raising=False)


def nested(**kwargs):
    return TransformedEnv(TransformedEnv(CountingEnv(3), StepCounter()), RewardSum(), **kwargs)


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
