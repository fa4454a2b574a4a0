from __future__ import annotations

import sys
import threading

import importlib_metadata
import pytest

from steppe import LibraryInfo, errors, list_envs, make_env, register_env
from steppe.registry import env_not_found, installed_library, refresh
from tests.limits import CHILD

ANY_ENV = "from steppe import hookimpl\n\n@hookimpl\ndef steppe_make_env(name, kwargs):\n"


def test_make_env_gives_the_plugin_the_name_and_the_arguments(gym):
    assert make_env("gym:my.module:Env-v0", id=3, render_mode="human") == [
        "my.module:Env-v0",
        {"id": 3, "render_mode": "human"},
    ]


def test_env_names_and_library_come_from_the_plugin(gym):
    assert list_envs("gym") == ["ALE/Pong-v5", "CartPole-v1", "Pendulum-v1", "my.module:Env-v0"]
    assert gym.library("gym") == LibraryInfo("gymnasium", "1.4.0")


def test_the_plugin_registers_with_its_library(gym):
    gym.register_with_library("gym", "Mine-v0", "toy:Line", {"max_episode_steps": 3})

    assert sys.modules["fake_steppe_gym.plugin"].CALLS == [("Mine-v0", "toy:Line", {"max_episode_steps": 3})]


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


def test_a_broken_plugin_raises_the_same_error_again(registry, fake_dist):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": "1 / 0"})
    caught = []
    for _ in range(2):
        with pytest.raises(errors.PluginBroken) as error:
            make_env("acme:a")
        caught.append(error.value)
    assert caught[0] is caught[1]


def test_a_fixed_plugin_works_after_refresh(registry, fake_dist):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": "1 / 0"})
    with pytest.raises(errors.PluginBroken):
        make_env("acme:a")
    (fake_dist.path / "acme_sim.py").write_text(f"{ANY_ENV}    return name\n")
    refresh()
    assert make_env("acme:a") == "a"


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


def test_a_module_that_exits_on_import_is_only_broken(registry, fake_dist):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": "raise SystemExit(3)"})
    with pytest.raises(errors.PluginBroken, match="SystemExit: 3"):
        make_env("acme:a")


def test_a_refused_plugin_leaves_the_hooks_of_others_alone(gym, fake_dist):
    fake_dist(
        "acme-sim",
        envs={"acme": "acme_sim"},
        files={"acme_sim.py": f"{ANY_ENV}    return 1\n\n@hookimpl\ndef steppe_envs():\n    return 1\n"},
    )
    with pytest.raises(errors.PluginIncompatible):
        make_env("acme:a")
    assert make_env("gym:Pendulum-v1") == ["Pendulum-v1", {}]


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


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
def test_a_note_says_which_id_and_which_plugin(registry, fake_dist):
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": f"{ANY_ENV}    return {{}}['k']\n"})
    with pytest.raises(KeyError) as caught:
        make_env("acme:a")
    assert caught.value.__notes__ == ["while making 'acme:a' with acme-sim 2.1"]


def test_two_threads_import_a_plugin_once(registry, fake_dist):
    source = "import builtins\nbuiltins.steppe_imports = getattr(builtins, 'steppe_imports', 0) + 1\n"
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": f"{source}{ANY_ENV}    return name\n"})
    made = []
    threads = [threading.Thread(target=lambda: made.append(make_env("acme:a"))) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(CHILD)
        assert made == ["a"] * 8
        assert sys.modules["builtins"].steppe_imports == 1
    finally:
        del sys.modules["builtins"].steppe_imports


def test_a_slow_plugin_import_does_not_block_other_plugins(gym, fake_dist):
    source = "import threading, builtins\nbuiltins.steppe_gate[0].set()\nassert builtins.steppe_gate[1].wait(60)\n"
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": f"{source}{ANY_ENV}    return name\n"})
    builtins = sys.modules["builtins"]
    builtins.steppe_gate = (threading.Event(), threading.Event())
    slow = threading.Thread(target=make_env, args=("acme:a",))
    try:
        slow.start()
        assert builtins.steppe_gate[0].wait(CHILD)
        assert make_env("gym:Pendulum-v1") == ["Pendulum-v1", {}]
    finally:
        builtins.steppe_gate[1].set()
        slow.join(CHILD)
        del builtins.steppe_gate


# Names registered in process


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


# Tracing


def test_tracing_prints_imports_and_calls(gym, monkeypatch, capsys):
    monkeypatch.setenv("STEPPE_TRACE_PLUGINS", "1")
    make_env("gym:Pendulum-v1", g=9.81)
    printed = capsys.readouterr().err
    assert "steppe: loaded Plugin 'gym' (steppe-gym 0.1.0) from fake_steppe_gym.plugin (" in printed
    call = "steppe: steppe_make_env(name='Pendulum-v1', kwargs={'g': 9.81}) of fake_steppe_gym.plugin\n"
    assert call in printed


def test_nothing_is_printed_without_tracing(gym, capsys):
    make_env("gym:Pendulum-v1")
    assert capsys.readouterr() == ("", "")


def test_an_installed_library_is_described_without_importing_it():
    found = installed_library("pluggy", "pluggy")

    assert found.dist == "pluggy"
    assert found.version == importlib_metadata.version("pluggy")
    assert found.module_file.endswith("__init__.py")
    with pytest.raises(importlib_metadata.PackageNotFoundError):
        installed_library("no-such-library", "no_such_library")


@pytest.mark.parametrize(
    ("asked", "suggested"), [("gymnasium:Taxi-v3", "gym:Taxi-v3"), ("dm_control:hopper/hop", "dm:hopper/hop")]
)
def test_the_name_of_a_library_suggests_its_namespace(registry, asked, suggested):
    with pytest.raises(errors.PluginNotFound, match=f"Did you mean '{suggested}'"):
        make_env(asked)
