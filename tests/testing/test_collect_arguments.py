"""Wrong input to ``steppe collect``: one line, status 2, nothing written, and torch never loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import CHILD


@pytest.fixture
def steppe(steppe_with_commands):
    return steppe_with_commands


@pytest.fixture
def collect(steppe, acme, tmp_path):
    def run(*arguments, id="acme:a", frames="8"):
        result = steppe("collect", id, "--frames", frames, "--out", str(tmp_path / "out"), *arguments)
        assert (result.status, result.out) == (2, "")
        assert not (tmp_path / "out").exists()
        assert result.err.count("\n") == 1
        return result.err.removeprefix("steppe collect: ").strip()

    return run


@pytest.mark.parametrize("frames", ["0", "-3", "1.5", "many", ""])
def test_frames_must_be_a_positive_integer(collect, frames):
    assert collect(frames=frames).startswith(f"argument --frames: expected a positive integer, got {frames!r}")


@pytest.mark.parametrize("option", ["--num-envs", "--num-processes", "--max-steps"])
def test_counts_must_be_positive_integers(collect, option):
    assert collect(option, "0").startswith(f"argument {option}: expected a positive integer, got '0'")


def test_an_unknown_namespace_is_the_registrys_error(collect):
    assert collect(id="acmee:a").startswith("No plugin provides 'acmee:' (asked for 'acmee:a'). Did you mean 'acme:a'?")


def test_a_malformed_id_is_the_registrys_error(collect):
    assert collect(id="acme").startswith("'acme' is not an environment id.")


def test_a_policy_needs_a_module_and_a_name(collect):
    assert collect("--policy", "policies") == "--policy takes module:callable, got 'policies'"


def test_a_policy_that_does_not_exist(collect):
    expected = "the policy 'no_policies:f' cannot be imported: ModuleNotFoundError: No module named 'no_policies'"
    assert collect("--policy", "no_policies:f") == expected


def test_a_policy_of_which_the_module_fails(collect, fake_dist):
    fake_dist("mine", files={"my_policies.py": "1 / 0"})
    expected = "the policy 'my_policies:f' cannot be imported: ZeroDivisionError: division by zero"
    assert collect("--policy", "my_policies:f") == expected


def test_a_policy_that_is_not_callable(collect, fake_dist):
    fake_dist("mine", files={"my_policies.py": "f = 3"})
    assert collect("--policy", "my_policies:f") == "the policy 'my_policies:f' is not callable: it is of type int"


def test_a_folder_with_something_in_it_is_left_alone(steppe, acme, tmp_path):
    (tmp_path / "old.txt").write_text("old")
    result = steppe("collect", "acme:a", "--frames", "8", "--out", str(tmp_path))
    assert result == (
        2,
        "",
        f"steppe collect: --out {str(tmp_path)!r} is not empty; --overwrite replaces its contents\n",
    )
    assert (tmp_path / "old.txt").read_text() == "old"


def test_a_file_is_left_alone(steppe, acme, tmp_path):
    (tmp_path / "file").write_text("old")
    result = steppe("collect", "acme:a", "--frames", "8", "--out", str(tmp_path / "file"), "--overwrite")
    assert (result.status, result.err) == (2, f"steppe collect: --out {str(tmp_path / 'file')!r} is a file\n")


def test_the_current_folder_is_never_overwritten(steppe, acme, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    result = steppe("collect", "acme:a", "--frames", "8", "--out", "..", "--overwrite")
    assert (result.status, (tmp_path / "work").exists()) == (2, True)
    assert "contains the current or the home folder" in result.err


def test_wrong_input_is_an_error_before_torch_is_loaded():
    code = (
        "import sys; from steppe.cli import main; "
        "assert main(['collect', 'nobody:a', '--frames', '1', '--out', 'x']) == 2; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD)
    assert done.returncode == 0, done.stderr
