from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import CHILD


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--help"], ["collect", "--help"]])
def test_help_exits_with_0(steppe, arguments):
    status, out, err = steppe(*arguments)
    assert (status, err) == (0, "")
    assert out.startswith("usage: steppe")


def test_help_names_every_command(steppe):
    out = steppe("--help").out
    assert [
        name
        for name in ("plugins", "envs", "info", "check", "collect", "record", "new-plugin")
        if f"\n    {name}" not in out
    ] == []


@pytest.mark.parametrize("arguments", [[], ["fly"], ["plugins", "--fly"], ["check"]])
def test_wrong_arguments_are_one_line_on_stderr(steppe, arguments):
    status, out, err = steppe(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("steppe")
    assert err.count("\n") == 1


def test_an_option_that_a_command_does_not_have_leads_to_the_help_of_that_command(steppe):
    assert steppe("plugins", "--laod").err == (
        "steppe plugins: unrecognized arguments: --laod ('steppe plugins --help' says more)\n"
    )


def test_version(steppe):
    assert steppe("--version").out.startswith("steppe ")


def test_module_and_closed_pipe():
    source = f"{sys.executable} -m steppe info | head -n 1"
    done = subprocess.run(["bash", "-c", source], capture_output=True, text=True, timeout=CHILD)
    assert (done.stdout, done.stderr) == ("system:\n", "")


@pytest.mark.parametrize(
    "command", ["['plugins']", "['plugins', '--all']", "['info']", "['envs', '--help']", "['--help']"]
)
def test_listing_commands_load_neither_torch_nor_rich(command):
    code = (
        f"import sys; from steppe.cli import main; main({command}); assert not {{'torch', 'rich'}} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=CHILD)
    assert done.returncode == 0, done.stderr
