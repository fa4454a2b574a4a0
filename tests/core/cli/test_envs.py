from __future__ import annotations

import json

import pytest


def test_names_are_listed_one_a_line(steppe, acme):
    assert steppe("envs", "acme") == (0, "HalfCheetah-v4\nHalfCheetah-v5\nPendulum-v1\n", "")


@pytest.mark.parametrize("pattern", ["cheetah", "half*-v?", "HalfCheetah"])
def test_a_pattern_is_a_part_of_the_name_or_a_glob(steppe, acme, pattern):
    assert steppe("envs", "acme", pattern).out.split() == ["HalfCheetah-v4", "HalfCheetah-v5"]


def test_a_pattern_without_a_match_is_an_error(steppe, acme):
    assert steppe("envs", "acme", "ant") == (2, "", "steppe envs: no environment of 'acme:' matches 'ant'\n")


def test_without_a_namespace_the_counts_of_all(steppe, acme, fake_dist):
    fake_dist("bad-sim", "1.0", envs={"bad": "bad_sim"}, files={"bad_sim.py": "1 / 0"})
    status, out, _ = steppe("envs")
    assert status == 0
    assert out.splitlines()[1] == "acme       3"
    assert out.splitlines()[2].startswith("bad        Plugin 'bad' (bad-sim 1.0, bad_sim) failed to import")
    assert json.loads(steppe("envs", "--json").out) == {"acme": 3, "bad": None}


def test_an_unknown_namespace_is_one_line_on_stderr(steppe, acme):
    status, out, err = steppe("envs", "acmee")
    assert (status, out) == (2, "")
    assert err == (
        "steppe envs: No plugin provides 'acmee:' (asked for 'acmee:*'). Did you mean 'acme:*'? "
        "Installed namespaces: acme ('steppe plugins' lists them).\n"
    )


def test_json_is_a_list(steppe, acme):
    assert json.loads(steppe("envs", "acme", "pend", "--json").out) == ["Pendulum-v1"]
