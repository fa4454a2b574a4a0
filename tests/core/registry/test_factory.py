"""EnvFactory: an id with arguments, which can be pickled."""

from __future__ import annotations

import pickle

import pytest

from steppe import env_factory, register_env

pytest.importorskip("torch")

from steppe_testing import CountingEnv


def test_a_factory_makes_what_its_id_names(registry):
    register_env("toy:Count", lambda **kwargs: CountingEnv(**kwargs))
    factory = env_factory("toy:Count", max_steps=4)

    assert factory().rollout(9).shape == (4,)
    assert "toy:Count" in repr(factory)


def test_a_pickled_factory_takes_a_registered_function_along(registry):
    register_env("toy:Count", CountingEnv)

    assert pickle.loads(pickle.dumps(env_factory("toy:Count", max_steps=2)))().rollout(9).shape == (2,)
