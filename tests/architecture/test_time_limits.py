"""Processes of tests have time limits, and a hanging test does not end the run."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.limits import CHILD
from tools.workspace import ROOT

pytestmark = pytest.mark.programs

STARTS = {"run", "call", "check_call", "check_output"}
WAITS = {"communicate", "wait", "join"}
SHORT = 100.0  # seconds; what takes 20 on a quiet machine needs more on a busy one


def limit_of(call: ast.Call) -> ast.expr | None:
    """Return the time limit that a call passes."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == "timeout"), None)


def unlimited(source: str) -> Iterator[int]:
    """Lines of calls that wait for a process or thread for ever, or for a few seconds only."""
    nodes = list(ast.walk(ast.parse(source)))
    awaited = {id(node.value) for node in nodes if isinstance(node, ast.Await)}  # a coroutine is no process
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or id(node) in awaited:
            continue
        name = node.func.attr
        if name not in (*STARTS, *WAITS) or any(keyword.arg is None for keyword in node.keywords):
            continue  # **options may have one
        owner = ast.unparse(node.func.value)
        limit = limit_of(node)
        if name in WAITS and owner != "os":
            limit = limit or (node.args[0] if node.args else None)
        elif name not in STARTS or owner != "subprocess":
            continue
        value = getattr(limit, "value", None)
        if limit is None or (isinstance(value, (int, float)) and value < SHORT):
            yield node.lineno


def test_started_processes_have_a_time_limit() -> None:
    folders = [ROOT / "tests", ROOT / "packages/testing"]
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for line in unlimited(path.read_text(encoding="utf-8"))
    ]

    assert found == [], "give timeout=CHILD (tests/limits.py)"


def test_calls_without_a_limit_are_found() -> None:
    wrong = "subprocess.run([])\nthread.join()\nprocess.communicate(timeout=9)\nprocess.wait(5)\n"
    source = wrong + "','.join(x)\nrun([])\nsubprocess.run([], timeout=CHILD)\n"

    assert list(unlimited(source)) == [1, 2, 3, 4]


HANGING = """
    import time

    def test_that_sleeps():
        time.sleep(600)

    def test_after_it():
        pass

    def test_whose_compiled_code_does_not_return():
        sum(range(10**13))  # hours, in which Python answers no signal
"""


def run_hanging(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_hanging.py").write_text(textwrap.dedent(HANGING))
    config = (
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
    )
    command = [sys.executable, "-m", "pytest", "-q", *config, *options, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=CHILD, cwd=folder)


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    done = run_hanging(tmp_path, "-o", "timeout=1", "-k", "not compiled")

    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "test_that_sleeps" in done.stdout


def test_compiled_code_that_hangs_ends_the_run_with_a_traceback(tmp_path: Path) -> None:
    done = run_hanging(tmp_path, "-o", "timeout=1", "-o", "faulthandler_timeout=2", "-k", "does_not_return")

    assert done.returncode == 1, done.stdout
    assert "Timeout (0:00:02)!" in done.stderr
    assert "in test_whose_compiled_code_does_not_return" in done.stderr
