from __future__ import annotations

import json
import sys


def test_a_row_for_each_namespace(steppe, acme):
    assert steppe("plugins") == (
        0,
        "KIND  NAME  PACKAGE   VERSION  NEEDS              STATE\n"
        "env   acme  acme-sim  2.1      acme-engine>=3,<4  available\n",
        "",
    )
    assert "acme_sim" not in sys.modules


def test_nothing_installed_says_what_to_install(steppe):
    assert steppe("plugins") == (0, "No plugin is installed. The first: pip install 'steppe[gym]'.\n", "")


def test_load_imports_each_and_names_its_library(steppe, acme):
    status, out, _ = steppe("plugins", "--load")
    assert status == 0
    assert out.splitlines()[1].endswith("OK (acme-engine 3.0)")


def test_load_fails_on_a_broken_plugin_and_shows_the_others(steppe, acme, fake_dist):
    fake_dist("bad-sim", "1.0", envs={"bad": "bad_sim"}, files={"bad_sim.py": "1 / 0"})
    status, out, _ = steppe("plugins", "--load")
    assert status == 1
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["3.0)", "broken"]
    assert "Plugin 'bad' (bad-sim 1.0, bad_sim) failed to import: ZeroDivisionError: division by zero" in out


def test_a_hidden_plugin_is_not_loaded(steppe, acme, monkeypatch):
    monkeypatch.setenv("STEPPE_DISABLE_PLUGINS", "acme")
    status, out, _ = steppe("plugins", "--load")
    assert status == 0
    assert out.splitlines()[1].endswith("blocked")
    assert "acme_sim" not in sys.modules


def test_a_broken_plugin_does_no_harm_without_load(steppe, fake_dist):
    fake_dist("bad-sim", "1.0", envs={"bad": "bad_sim"}, files={"bad_sim.py": "1 / 0"})
    assert steppe("plugins").status == 0


def test_transforms_of_a_package_share_a_row_without_all(steppe, fake_dist):
    """The transforms of a package share a row; --all lists each of them."""
    names = ["Blur", "Crop", "Resize", "Zoom"]
    fake_dist("steppe-vision", "0.1.0", transforms={name: f"v:{name}" for name in names})
    assert "transform  Blur, Crop, Resize and 1 more  steppe-vision" in steppe("plugins").out
    out = steppe("plugins", "--all").out
    assert [line.split()[1] for line in out.splitlines()[1:5]] == names
    assert "pip install 'steppe[gym]'" in out


def test_loggers_of_a_package_are_listed(steppe, fake_dist):
    fake_dist("steppe-paper", "0.1.0", entry_points={"steppe.loggers": {"InkLogger": "p:I", "PaperLogger": "p:P"}})
    assert "logger  InkLogger, PaperLogger  steppe-paper" in steppe("plugins").out


def test_json_holds_the_whole_record(steppe, acme):
    (record,) = json.loads(steppe("plugins", "--json", "--load").out)
    assert (record["name"], record["dist"], record["state"]) == ("acme", "acme-sim", "loaded")
    assert record["library"] == {"dist": "acme-engine", "version": "3.0", "module_file": ""}
    assert record["requires"] == ["acme-engine>=3,<4", "steppe"]
