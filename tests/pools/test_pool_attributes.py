"""Attributes of the environments of a pool, read and set through it."""

from __future__ import annotations

import pytest

from steppe import ProcessorAsyncEnvPool, StepCounter, ThreadingAsyncEnvPool, TransformedEnv, make_env
from steppe.errors import ArgumentError

BOTH = pytest.mark.parametrize("pool", [ThreadingAsyncEnvPool, ProcessorAsyncEnvPool])


@BOTH
def test_an_assigned_attribute_is_set_in_each_environment(pool):
    with pool([lambda: make_env("gym:Pendulum-v1")] * 3) as env:
        env.g = 3.5
        assert list(env.unwrapped.g) == [3.5] * 3 == list(env.g)

        env.g = [1.0, 2.0, 4.0]
        assert list(env.unwrapped.g) == [1.0, 2.0, 4.0]
        assert "g" not in vars(env)
        with pytest.raises(ArgumentError, match="g needs a list of 3 values, one for each environment, found 2"):
            env.g = [1.0, 2.0]


@BOTH
def test_transforms_pass_an_assignment_on(pool):
    make = lambda: TransformedEnv(make_env("gym:Pendulum-v1"), StepCounter())  # noqa: E731
    with TransformedEnv(pool([make] * 2), StepCounter(step_count_key="outer")) as env:
        env.g = [5.0, 6.0]

        assert list(env.base_env.unwrapped.g) == [5.0, 6.0]
