"""Wrong input to ``steppe record``: one line, status 2, nothing written, and torch never loaded."""

from __future__ import annotations

import pytest

from tools.workspace import package


@pytest.fixture
def installed(fake_dist):
    """The entry point of the command and a plugin, in the registry of the test."""
    entry = package("steppe-record").entry_points("steppe.commands")
    fake_dist("steppe-record", "0.1.0", entry_points={"steppe.commands": entry})
    fake_dist("acme-sim", "2.1", envs={"acme": "acme_sim"})


@pytest.fixture
def record(steppe, installed, tmp_path):
    def run(*arguments, id="acme:a", out="out.mp4"):
        result = steppe("record", id, "--out", str(tmp_path / out), *arguments)
        assert (result.status, result.out) == (2, "")
        assert result.err.count("\n") == 1
        return result.err.removeprefix("steppe record: ").strip()

    return run


def test_an_unknown_namespace_is_the_registrys_error(record):
    assert record(id="acmee:a").startswith("No plugin provides 'acmee:' (asked for 'acmee:a'). Did you mean 'acme:a'?")


def test_the_name_says_the_format(record):
    assert record(out="out.avi").endswith("out.avi': the name of a video ends in .mp4 or .gif")


def test_an_existing_file_is_kept(record, tmp_path):
    (tmp_path / "out.mp4").write_text("mine")
    assert record().endswith("out.mp4' exists; --overwrite replaces it")
    assert (tmp_path / "out.mp4").read_text() == "mine"


@pytest.mark.parametrize("option", ["--steps", "--num-envs", "--fps"])
def test_counts_must_be_positive_integers(record, option):
    assert record(option, "0").startswith(f"argument {option}: expected a positive integer, got '0'")


def test_a_policy_that_does_not_exist(record):
    expected = "the policy 'no_policies:f' cannot be imported: ModuleNotFoundError: No module named 'no_policies'"
    assert record("--policy", "no_policies:f") == expected
