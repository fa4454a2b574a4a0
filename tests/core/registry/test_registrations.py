"""Environments that are registered in this process."""

from __future__ import annotations

import sys

import pytest

from steppe import errors, list_envs, make_env, register_env


def test_the_plugin_registers_with_its_library(gym):
    gym.register_with_library("gym", "Mine-v0", "toy:Line", {"max_episode_steps": 3})

    assert sys.modules["fake_steppe_gym.plugin"].CALLS == [("Mine-v0", "toy:Line", {"max_episode_steps": 3})]


def test_a_registered_namespace_is_given_the_name(registry):
    register_env("toy", lambda name, **kwargs: (name, kwargs), names=["a", "b"])
    assert make_env("toy:a", n=1) == ("a", {"n": 1})
    assert list_envs("toy") == ["a", "b"]
    assert registry.namespaces() == ["toy"]


def test_a_registered_id_is_made_without_its_name(registry):
    register_env("toy:line", lambda **kwargs: kwargs)
    assert make_env("toy:line", n=1) == {"n": 1}
    assert list_envs("toy") == ["line"]


def test_registering_again_replaces(registry):
    register_env("toy", lambda name: 1)
    register_env("toy", lambda name: 2)
    assert make_env("toy:a") == 2


def test_a_name_outside_the_registered_list_is_not_found(registry):
    register_env("toy", lambda name: name, names=["line", "ring"])
    with pytest.raises(errors.EnvNotFound) as caught:
        make_env("toy:lime")
    assert str(caught.value) == (
        "'toy:' (registered in this process) has no environment 'lime'. Did you mean 'line'? It has: line, ring."
    )


def test_an_installed_namespace_cannot_be_registered(gym):
    with pytest.raises(errors.PluginConflict) as caught:
        register_env("gym", lambda name: name)
    assert str(caught.value) == (
        "'gym:' cannot be registered in this process: steppe-gym 0.1.0 provides it. "
        "Choose another name, or hide the package: STEPPE_DISABLE_PLUGINS=steppe-gym."
    )


@pytest.mark.parametrize("name", ["", "my toy", ":a", "toy:"])
def test_a_name_that_no_id_could_hold_cannot_be_registered(registry, name):
    with pytest.raises(errors.EnvIdError):
        register_env(name, lambda name: name)
