"""Environments are composed of helpers, so that they inherit from few classes."""

from __future__ import annotations

import pytest

from steppe import AsyncEnvPool, ParallelEnv, SerialEnv, TransformedEnv
from steppe.envs import EnvBase


@pytest.mark.parametrize("cls", [SerialEnv, ParallelEnv, TransformedEnv, AsyncEnvPool])
def test_at_most_two_environment_classes_stand_above(cls):
    above = [parent.__name__ for parent in cls.__mro__[1:] if issubclass(parent, EnvBase)]

    assert len(above) <= 2, above
