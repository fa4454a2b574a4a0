from __future__ import annotations

import json
import sys

import pytest

from steppe.errors import PluginBlocked
from steppe.registry import Registry, get_available_libraries, list_plugins, make_env, refresh


def states(registry):
    return {(record.dist, record.name): record.state for record in registry.records()}


def test_a_record_says_what_metadata_says(gym, fake_dist):
    (record,) = list_plugins()
    assert (record.kind, record.name, record.target) == ("env", "gym", "fake_steppe_gym.plugin")
    assert (record.dist, record.version, record.location) == ("steppe-gym", "0.1.0", str(fake_dist.path))
    assert record.requires == ("steppe>=0.1,<0.2",)
    assert record.library_range == "gymnasium>=0.28 or gym>=0.13,<0.27"
    assert (record.state, record.problem) == ("available", "")


def test_listing_imports_no_plugin(gym):
    list_plugins()
    gym.namespaces()
    get_available_libraries()
    assert "fake_steppe_gym" not in sys.modules


def test_using_one_plugin_imports_no_other(gym, fake_dist):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": ""})
    make_env("gym:Pendulum-v1")
    assert "acme_sim" not in sys.modules


def test_every_state_of_a_plugin_is_reported(gym, fake_dist, monkeypatch):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, files={"acme_sim.py": "1 / 0"})
    fake_dist("needy", envs={"needy": "needy"}, requires=["nothing-like-it"])
    fake_dist("twin-a", envs={"twin": "a"})
    fake_dist("twin-b", envs={"twin": "b"})
    fake_dist("shy", envs={"shy": "shy"})
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "shy")
    make_env("gym:Pendulum-v1")
    with pytest.raises(Exception, match="failed to import"):
        make_env("acme:a")
    assert states(gym) == {
        ("acme-sim", "acme"): "broken",
        ("needy", "needy"): "unmet",
        ("shy", "shy"): "blocked",
        ("steppe-gym", "gym"): "loaded",
        ("twin-a", "twin"): "conflict",
        ("twin-b", "twin"): "conflict",
    }
    problems = {record.name: record.problem for record in gym.records()}
    assert problems["needy"].startswith("Plugin 'needy' (needy 1.0) needs nothing-like-it")
    assert problems["gym"] == ""


def test_a_conflict_leaves_other_plugins_usable(gym, fake_dist):
    fake_dist("twin-a", envs={"twin": "a"})
    fake_dist("twin-b", envs={"twin": "b"})
    assert make_env("gym:Pendulum-v1") == ["Pendulum-v1", {}]


def test_hiding_one_side_of_a_conflict_mends_it(gym, fake_dist, monkeypatch):
    fake_dist("other-gym", envs={"gym": "other"})
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "other_gym")
    assert make_env("gym:Pendulum-v1") == ["Pendulum-v1", {}]


@pytest.mark.parametrize("value", ["gym", "steppe-gym", "acme, Steppe_Gym"])
def test_hiding_takes_a_namespace_or_a_distribution(gym, monkeypatch, value):
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", value)
    with pytest.raises(PluginBlocked):
        make_env("gym:Pendulum-v1")
    assert gym.namespaces() == []


def test_an_empty_list_of_what_to_use_hides_everything(gym, monkeypatch):
    monkeypatch.setenv("STEPPE_PLUGINS", "")
    assert gym.namespaces() == []


def test_the_same_distribution_twice_on_the_path_is_no_conflict(tmp_path, fake_dist, steppe_registry):
    from steppe_testing.fake_dists import FakeDists

    second = FakeDists(tmp_path)
    for dists, version in ((fake_dist, "2.0"), (second, "1.0")):
        dists("acme-sim", version, envs={"acme": "acme_sim"})
    (record,) = Registry(path=[str(fake_dist.path), str(tmp_path)]).records()
    assert record.version == "2.0"


def test_an_editable_install_is_located_at_its_source(registry, fake_dist):
    folder = fake_dist("acme-sim", envs={"acme": "acme_sim"})
    (folder / "direct_url.json").write_text(
        json.dumps({"url": "file:///home/me/my%20sim", "dir_info": {"editable": True}})
    )
    assert list_plugins()[0].location == "/home/me/my sim"


def test_unreadable_metadata_is_left_out_with_a_warning(gym, fake_dist):
    folder = fake_dist("acme-sim", envs={"acme": "acme_sim"})
    (folder / "METADATA").unlink()
    with pytest.warns(RuntimeWarning, match="steppe leaves out a package in .*: its metadata cannot be read"):
        records = list_plugins()
    assert [record.name for record in records] == ["gym"]


@pytest.mark.parametrize("file", ["engine.egg-info/PKG-INFO", "engine.egg-info"])
def test_a_library_that_an_old_setuptools_installed_is_found(registry, fake_dist, file):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, requires=["engine>=1.5"])
    path = fake_dist.path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("Metadata-Version: 1.0\nName: engine\nVersion: 1.4\n")
    assert "engine 1.4 is installed in" in list_plugins()[0].problem


def test_an_interrupted_installation_counts_as_missing(registry, fake_dist):
    fake_dist("acme-sim", envs={"acme": "acme_sim"}, requires=["engine"])
    (fake_dist("engine") / "METADATA").unlink()
    assert "needs engine, which is not installed" in list_plugins()[0].problem


def test_a_plugin_installed_meanwhile_is_found(registry, fake_dist):
    assert registry.namespaces() == []
    fake_dist(
        "acme-sim",
        envs={"acme": "acme_sim"},
        files={"acme_sim.py": "from steppe import hookimpl\n@hookimpl\ndef steppe_make_env(name):\n    return name\n"},
    )
    assert make_env("acme:a") == "a"


def test_refresh_sees_what_was_installed_since(registry, fake_dist):
    assert list_plugins() == []
    fake_dist("acme-sim", envs={"acme": "acme_sim"})
    refresh()
    assert registry.namespaces() == ["acme"]


def test_available_libraries_are_those_whose_requirements_hold(gym, fake_dist):
    fake_dist("needy", envs={"needy": "needy"}, requires=["nothing-like-it"])
    assert get_available_libraries() == {"gym": True, "needy": False, "vmas": False}


def test_two_namespaces_may_share_one_module(registry, fake_dist):
    fake_dist(
        "acme-sim",
        envs={"acme": "acme_sim", "acme2": "acme_sim"},
        files={"acme_sim.py": "from steppe import hookimpl\n@hookimpl\ndef steppe_make_env(name):\n    return name\n"},
    )
    assert [make_env("acme:a"), make_env("acme2:b")] == ["a", "b"]
