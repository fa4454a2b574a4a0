"""The functions of ``steppe.registry`` use the registry of the process, or of the block."""

from __future__ import annotations

import pytest

from steppe import errors, list_envs, make_env, register_env
from steppe.registry import Registry, env_factory, get_available_libraries, list_plugins, refresh, use

TOY = "from steppe import hookimpl\n\n@hookimpl\ndef steppe_make_env(name, kwargs):\n    return (name, kwargs)\n"


def test_ids_of_a_program_belong_to_the_registry_of_the_block(registry):
    with use(Registry(path=[], steppe_version="0.1.0")):
        register_env("toy", lambda name, **kwargs: None, names=["Ring", "Line"])
        assert list_envs("toy") == ["Line", "Ring"]
        with pytest.raises(errors.PluginError, match="made no environment for 'Line'"):
            make_env("toy:Line")

    with pytest.raises(errors.PluginNotFound, match="toy"):
        make_env("toy:Line")


def test_a_factory_makes_what_make_env_makes(registry, fake_dist):
    fake_dist("acme-toy", "2.1", envs={"toy": "acme_toy"}, files={"acme_toy.py": TOY})
    make = env_factory("toy:Line", length=3)
    assert make() == make_env("toy:Line", length=3) == ("Line", {"length": 3})


def test_refresh_finds_a_plugin_that_was_installed_meanwhile(registry, fake_dist):
    assert "toy" not in get_available_libraries()
    fake_dist("acme-toy", "2.1", envs={"toy": "acme_toy"}, files={"acme_toy.py": TOY})
    refresh()
    assert get_available_libraries()["toy"]
    assert [record.name for record in list_plugins()] == ["toy"]
