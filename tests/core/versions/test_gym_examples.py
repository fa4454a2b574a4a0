"""gym and gymnasium side by side, as the guide to library wrappers shows them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from steppe.versions import gym_backend, set_gym_backend
from tests.limits import CHILD

gym = pytest.importorskip("gym")
gymnasium = pytest.importorskip("gymnasium")


def make():
    return gym_backend().make("Pendulum-v1")


def test_the_backend_chooses_the_library():
    with set_gym_backend(gymnasium):
        assert gym_backend() is gymnasium
        env1 = make()
    with set_gym_backend(gym):
        assert gym_backend() is gym
        env2 = make()

    assert isinstance(env1.unwrapped, gymnasium.Env)
    assert isinstance(env2.unwrapped, gym.Env)
    assert not isinstance(env2.unwrapped, gymnasium.Env)


def test_the_decorator_registers_one_function():
    @set_gym_backend("gym")
    def old():
        return make()

    assert isinstance(old().unwrapped, gym.Env)
    assert isinstance(make().unwrapped, gymnasium.Env)


def test_modules_of_the_backend():
    with set_gym_backend("gym"):
        assert gym_backend("wrappers") is gym.wrappers
    with set_gym_backend("gymnasium"):
        assert gym_backend("wrappers") is gymnasium.wrappers


def test_gymnasium_is_the_default_if_both_are_installed():
    assert gym_backend() is gymnasium


def test_set_holds_for_the_process():
    set_gym_backend("gym").set()

    assert gym_backend() is gym


def test_choosing_imports_no_library():
    code = """
import sys
from steppe.versions import effective_backend, gym_backend_name, implement_for, set_gym_backend

@implement_for("gym", "0.26")
@implement_for("gymnasium", "0.26")
def fun(): return 1

set_gym_backend("gym").set()
fun(), effective_backend(), gym_backend_name()
print(sorted({"gym", "gymnasium", "torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD, check=True)

    assert done.stdout.strip() == "[]"
