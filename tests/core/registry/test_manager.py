from __future__ import annotations

import sys

import importlib_metadata
import pytest

from steppe import LibraryInfo, errors, list_envs, make_env, register_env
from steppe.registry import env_not_found, installed_library

ANY_ENV = "from steppe import hookimpl\n\n@hookimpl\ndef steppe_make_env(name, kwargs):\n"


def test_make_env_gives_the_plugin_the_name_and_the_arguments(gym):
    assert make_env("gym:my.module:Env-v0", id=3, render_mode="human") == [
        "my.module:Env-v0",
        {"id": 3, "render_mode": "human"},
    ]


def test_env_names_and_library_come_from_the_plugin(gym):
    assert list_envs("gym") == ["ALE/Pong-v5", "CartPole-v1", "Pendulum-v1", "my.module:Env-v0"]
    assert gym.library("gym") == LibraryInfo("gymnasium", "1.4.0")


def test_a_library_that_takes_no_environments_is_an_error(registry, fake_dist):
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": f"{ANY_ENV}    return name"})

    with pytest.raises(errors.PluginError, match="cannot register environments with its library"):
        registry.register_with_library("acme", "Mine-v0", "toy:Line", {})
    with pytest.raises(errors.PluginNotFound, match="steppe-vmas"):
        registry.register_with_library("vmas", "Mine-v0", "toy:Line", {})


def test_a_plugin_may_leave_out_its_lists(registry, fake_dist):
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": f"{ANY_ENV}    return name"})
    assert list_envs("acme") == []
    assert registry.library("acme") is None
    assert str(env_not_found("acme", "a")) == "Plugin 'acme' (acme-sim 2.1) has no environment 'a'."


def test_env_not_found_works_for_a_plugin_that_is_not_installed(registry):
    text = str(env_not_found("acme", "rum", names=["run", "walk"]))
    assert text == "Plugin 'acme' has no environment 'rum'. Did you mean 'run'? 'steppe envs acme' lists all 2."


def test_a_missing_library_can_be_installed_without_refresh(registry, fake_dist):
    fake_dist(
        "acme-sim",
        envs={"acme": "acme_sim"},
        requires=["acme-engine>=1"],
        files={"acme_sim.py": f"{ANY_ENV}    return name"},
    )
    with pytest.raises(errors.LibraryMissing):
        make_env("acme:a")
    fake_dist("acme-engine", "1.0")
    assert make_env("acme:a") == "a"


class Picky(Exception):
    """An exception that cannot be made from its text."""

    def __init__(self, code, *, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code


def test_the_environments_own_exceptions_come_out_as_they_are(registry):
    raised = Picky(3, reason="no licence")

    def make(name):
        raise raised

    register_env("toy", make)
    with pytest.raises(Picky) as caught:
        make_env("toy:a")
    assert caught.value is raised


class Tank:
    """An environment whose arguments have no defaults."""

    def __init__(self, fish, *, litres, depth, lamp=None):
        raise OSError("it is made with all of them")


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"depth": 2}, "'toy:Eel' needs litres: write make_env('toy:Eel', litres=...). Tank.__init__() missing 1"),
        ({}, "'toy:Eel' needs litres and depth: write make_env('toy:Eel', litres=..., depth=...). Tank.__init__()"),
    ],
)
def test_missing_arguments_are_named_with_the_line(registry, kwargs, text):
    register_env("toy", Tank)

    with pytest.raises(errors.ArgumentError) as caught:
        make_env("toy:Eel", **kwargs)

    assert str(caught.value).startswith(text)
    assert isinstance(caught.value.__cause__, TypeError)


def test_missing_arguments_of_a_plugins_class_are_named(registry, fake_dist):
    code = f"{ANY_ENV}    return (lambda *, wind, sea, tide: 0)(**kwargs)\n"
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": code})

    with pytest.raises(
        errors.ArgumentError, match=r"needs wind, sea and tide: write make_env\('acme:a', wind=\.\.\., sea="
    ):
        make_env("acme:a")


def test_other_type_errors_of_an_environment_are_kept(registry):
    register_env("toy", Tank)

    with pytest.raises(TypeError, match="unexpected keyword argument 'sand'"):
        make_env("toy:Eel", litres=2, depth=2, sand=1)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
def test_a_note_says_which_id_and_which_plugin(registry, fake_dist):
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": f"{ANY_ENV}    return {{}}['k']\n"})
    with pytest.raises(KeyError) as caught:
        make_env("acme:a")
    assert caught.value.__notes__ == ["while making 'acme:a' with acme-sim 2.1"]


def test_an_installed_library_is_described_without_importing_it():
    found = installed_library("pluggy", "pluggy")

    assert found.dist == "pluggy"
    assert found.version == importlib_metadata.version("pluggy")
    assert found.module_file.endswith("__init__.py")
    with pytest.raises(importlib_metadata.PackageNotFoundError):
        installed_library("no-such-library", "no_such_library")


@pytest.mark.parametrize(
    ("namespace", "requires", "library"),
    [
        ("acme", ["steppe>=0.1", "acme-engine<4,>=3"], "acme-engine"),  # the only one
        ("acme", ["Acme[fast]>=2", "acme-engine>=3", "steppe"], "acme"),  # the one with the name of the namespace
        ("my-acme", ["acme-engine>=3", "my_acme>=1", "numpy"], "my-acme"),
        ("acme", ["steppe>=0.1", "numpy", "torch", "steppe-gym"], None),
        ("toy", ["acme>=2", "acme-engine>=3"], None),  # several, so a hook must choose
    ],
)
def test_the_required_library_is_reported(registry, fake_dist, namespace, requires, library):
    versions = {"acme": "2.1", "acme-engine": "3.5", "my-acme": "1.0", "numpy": "2", "torch": "2", "steppe-gym": "0.1"}
    for dist, version in versions.items():
        fake_dist(dist, version)
    code = f"from steppe import hookimpl\n{ANY_ENV}    return name\n"
    fake_dist("a-plugin", "0.1", envs={namespace: "a_plugin"}, requires=requires, files={"a_plugin.py": code})
    registry.refresh()

    found = registry.library(namespace)

    assert (found and (found.dist, found.version)) == (library and (library, versions[library]))


@pytest.mark.parametrize(
    ("asked", "suggested"), [("gymnasium:Taxi-v3", "gym:Taxi-v3"), ("dm_control:hopper/hop", "dm:hopper/hop")]
)
def test_the_name_of_a_library_suggests_its_namespace(registry, asked, suggested):
    with pytest.raises(errors.PluginNotFound, match=f"Did you mean '{suggested}'"):
        make_env(asked)
