"""Hooks of plugins are compared with their declarations."""

from __future__ import annotations

import pytest

from steppe import errors, make_env
from steppe.registry import Registry, use

HEAD = "from steppe import LibraryInfo, hookimpl\n"


MAKE = "@hookimpl\ndef steppe_make_env(name, kwargs):\n    return {}\n"


NAMES = "@hookimpl\ndef steppe_env_names():\n    return {}\n"


SUBJECT = "Plugin 'acme' (acme-sim 2.1)"


@pytest.fixture
def acme(fake_dist, steppe_registry):
    """Install a plugin with these hooks, in a registry that validates results."""
    with use(Registry(path=[str(fake_dist.path)], steppe_version="0.1.0")):

        def write(*hooks: str, head: str = HEAD) -> None:
            fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": head + "\n".join(hooks)})

        yield write


def text_of(kind, call, *args):
    with pytest.raises(kind) as caught:
        call(*args)
    assert type(caught.value) is kind
    return str(caught.value)


@pytest.mark.parametrize(
    ("hooks", "name", "line"),
    [
        ([MAKE.format("1").replace("@hookimpl\n", "")], "steppe_make_env", 2),
        ([MAKE.format("1"), NAMES.format("[]").replace("@hookimpl\n", "")], "steppe_env_names", 6),
    ],
)
def test_a_hook_without_its_marker_is_named_with_its_line(acme, hooks, name, line):
    acme(*hooks)

    assert text_of(errors.PluginIncompatible, make_env, "acme:Walk") == (
        f"{SUBJECT} does not fit steppe 0.1.0: {name} has no @hookimpl. Write @hookimpl above it, from steppe import "
        f"hookimpl (acme_sim.py:{line})."
    )


def test_a_plugin_may_look_at_the_declarations_of_the_hooks(acme):
    acme("from steppe.registry.hooks import steppe_worker_setup\n", MAKE.format("None"))

    assert "returned None" in text_of(errors.PluginError, make_env, "acme:Walk")
