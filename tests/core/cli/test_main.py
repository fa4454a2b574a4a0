from __future__ import annotations

import subprocess
import sys

import pytest

from tests.limits import CHILD


@pytest.mark.parametrize("arguments", [["--help"], ["plugins", "--help"], ["envs", "--help"]])
def test_help_exits_with_0(steppe, arguments):
    status, out, err = steppe(*arguments)
    assert (status, err) == (0, "")
    assert out.startswith("usage: steppe")


def test_help_names_the_commands_of_the_core(steppe):
    out = steppe("--help").out
    assert [name for name in ("plugins", "envs", "info") if f"\n    {name}" not in out] == []


COMMAND = """
from steppe.cli import UsageError

help = "say something"


def add_arguments(parser):
    parser.description = "Say a word, often."
    parser.add_argument("word")
    parser.add_argument("--times", type=int, default=1)


def run(args):
    if args.times < 0:
        raise UsageError(f"--times takes a natural number,\\ngot {args.times}")
    print(" ".join([args.word] * args.times))
    return 3
"""


@pytest.fixture
def say(fake_dist):
    entry_points = {"steppe.commands": {"say": "acme_say", "envs": "acme_say", "nothing": "acme_nothing"}}
    fake_dist("acme-say", "1.4", entry_points=entry_points, files={"acme_say.py": COMMAND})


def test_help_lists_commands_of_packages_without_importing_them(steppe, say):
    lines = [line.split() for line in steppe("--help").out.splitlines()]
    assert ["say", "from", "acme-say", "1.4"] in lines
    assert "acme_say" not in sys.modules


def test_a_command_of_a_package_is_run(steppe, say):
    assert steppe("say", "hello", "--times", "2") == (3, "hello hello\n", "")
    assert "Say a word, often." in steppe("say", "--help").out
    assert steppe("say", "hello", "--loud").err.startswith("steppe say: unrecognized arguments: --loud")
    assert steppe("say", "x", "--times", "-1") == (2, "", "steppe say: --times takes a natural number, got -1\n")
    assert "say something" not in steppe("envs", "--help").out  # a command of the core is always found first


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "record",
            "No installed package has the command 'record'. It is in steppe-record: pip install 'steppe[record]'.",
        ),
        (
            "sai",
            "There is no command 'sai'. Did you mean 'say'? Commands: envs, info, nothing, plugins, ",
        ),
        ("nothing", "Command 'nothing' (acme-say 1.4) names the module 'acme_nothing', which does not exist"),
    ],
)
def test_a_command_that_cannot_be_had_is_one_line(steppe, say, name, text):
    status, out, err = steppe(name)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"steppe {name}: {text}")


def test_a_command_in_two_packages_is_a_conflict_for_it_alone(steppe, say, fake_dist):
    fake_dist("other-say", "2.0", entry_points={"steppe.commands": {"say": "other"}})
    assert steppe("say", "a").err.startswith("steppe say: Two packages provide the command 'say': acme-say 1.4")
    assert "from acme-say 1.4 and other-say 2.0" in " ".join(steppe("--help").out.split())


def test_commands_are_listed_with_the_plugins(steppe, say):
    assert "command  envs, nothing, say  acme-say" in steppe("plugins").out


@pytest.mark.parametrize("arguments", [[], ["fly"], ["plugins", "--fly"], ["say"]])
def test_wrong_arguments_are_one_line_on_stderr(steppe, arguments):
    status, out, err = steppe(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("steppe")
    assert err.count("\n") == 1


def test_an_unknown_option_leads_to_the_help_of_its_command(steppe):
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
