"""Plugins are imported once, at the first use of a name."""

from __future__ import annotations

import sys
import threading

import pytest

from steppe import errors, make_env
from steppe.registry import refresh
from tests.limits import CHILD

ANY_ENV = "from steppe import hookimpl\n\n@hookimpl\ndef steppe_make_env(name, kwargs):\n"


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
