"""A forked program behaves like a program in a new interpreter."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import python
from tests.limits import CHILD

SHOWN = """
import os, sys
print(__name__, sys.argv[1:], os.path.realpath(os.getcwd()), os.environ["COLOUR"], "steppe" in sys.modules)
print(sys.modules["__main__"].__dict__ is globals(), os.path.basename(globals().get("__file__", "none")))
print(input(), file=sys.stderr)
import beside
print(beside.x)
import atexit
atexit.register(print, "the end")
sys.exit(3)
"""


@pytest.mark.parametrize("how", ["file", "-m", "-c"])
def test_a_fork_has_the_state_of_an_interpreter(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "red")
    (tmp_path / "shown.py").write_text(SHOWN, encoding="utf-8")
    (tmp_path / "beside.py").write_text("x = 5", encoding="utf-8")
    program = {"file": ["shown.py"], "-m": ["-m", "shown"], "-c": ["-c", SHOWN]}[how]

    found = [
        subprocess.run(
            [*command, *program, "a", "b"], cwd=tmp_path, input="hello\n", capture_output=True, text=True, timeout=CHILD
        )
        for command in ([sys.executable], python())
    ]

    assert (found[0].returncode, found[0].stderr) == (3, "hello\n")
    assert [getattr(found[1], name) for name in ("returncode", "stdout", "stderr")] == [
        getattr(found[0], name) for name in ("returncode", "stdout", "stderr")
    ]


def test_its_error_is_printed() -> None:
    done = subprocess.run([*python(), "-c", "raise OSError('no')"], capture_output=True, text=True, timeout=CHILD)

    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "OSError: no")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_fork_ends_by_its_signal(number: signal.Signals) -> None:
    code = f"import os; os.kill(os.getpid(), {int(number)})"

    assert subprocess.run([*python(), "-c", code], timeout=CHILD).returncode == -number


def test_ctrl_c_reaches_it() -> None:
    # It says that it is there inside of what catches the interrupt: the signal may come right after.
    code = "try:\n    print('there', flush=True)\n    input()\nexcept KeyboardInterrupt:\n    print('stopped')"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*python(), "-c", code], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.send_signal(signal.SIGINT)

        # Not communicate(), which would end its standard input at the same time.
        assert process.stdout.readline() == "stopped\n"


def test_killing_the_proxy_ends_the_fork() -> None:
    code = "print('there', flush=True); input()"
    with subprocess.Popen([*python(), "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        process.kill()

        assert process.stdout.read() == ""  # ends when nobody can write there
