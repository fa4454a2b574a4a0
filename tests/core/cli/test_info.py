from __future__ import annotations

import json
import platform


def test_info_names_versions_plugins_and_variables(steppe, acme, monkeypatch):
    monkeypatch.setenv("STEPPE_TRACE_PLUGINS", "0")
    told = json.loads(steppe("info", "--json").out)
    assert told["system"]["python"] == platform.python_version()
    assert told["plugins"] == {"acme:": "acme-sim 2.1, acme-engine 3.0"}
    assert told["environment"] == {"STEPPE_TRACE_PLUGINS": "0"}
    assert set(told["packages"]) >= {"steppe", "torch", "tensordict"}


def test_info_continues_after_a_broken_plugin(steppe, acme, fake_dist):
    fake_dist("bad-sim", "1.0", envs={"bad": "bad_sim"}, files={"bad_sim.py": "1 / 0"})
    status, out, _ = steppe("info")
    assert status == 0
    assert "bad-sim 1.0, Plugin 'bad' (bad-sim 1.0, bad_sim) failed to import: ZeroDivisionError" in out
    assert "acme-sim 2.1, acme-engine 3.0" in out
