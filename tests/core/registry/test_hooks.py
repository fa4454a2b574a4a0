"""The hooks of an environment plugin."""

from __future__ import annotations

import inspect
from pathlib import Path

import pluggy
import pytest

from steppe import hookimpl, make_env
from steppe.registry import hooks

NAMES = [name for name in vars(hooks) if name.startswith("steppe_")]
GUIDE = Path(__file__).parents[3] / "docs/authors/write-a-plugin.md"


@pytest.mark.parametrize("name", NAMES)
def test_the_guide_to_plugins_lists_each_hook(name):
    arguments = ", ".join(inspect.signature(getattr(hooks, name)).parameters)
    assert f"`{name}({arguments})`" in GUIDE.read_text(encoding="utf-8")


def test_a_hook_declares_only_the_arguments_that_it_needs(registry, fake_dist):
    plugin = "from steppe import hookimpl\n\n@hookimpl\ndef steppe_make_env(name):\n    return name\n"
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"}, files={"acme_sim.py": plugin})

    assert make_env("acme:walk") == "walk"


def test_hookimpl_marks_functions_for_the_hooks_of_steppe():
    class Plugin:
        @hookimpl
        def steppe_env_names(self):
            return ["walk"]

    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(Plugin())
    manager.check_pending()

    assert manager.hook.steppe_env_names() == ["walk"]
    assert manager.hook.steppe_library() is None
