"""Settings and checks of all tests: fixed seeds, no display, nothing left behind.

The time limit of a test is in pyproject.toml, those of its processes are in tests/limits.py.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.forked import close
from tests.processes import workers

for _name, _value in {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}.items():
    os.environ.setdefault(_name, _value)

# A shell ignores Ctrl-C for what it runs in the background, and so would every test that presses it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_PATIENCE = 20.0  # seconds that a process has to be gone after the last test
_SHM = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Seed all random states before each test."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def _ignored_arguments() -> None:
    """Let each test receive warnings about ignored arguments."""
    if "steppe.arguments" in sys.modules:
        sys.modules["steppe.arguments"]._warned.clear()


class Result(NamedTuple):
    """The result of a command: exit status and output."""

    status: int
    out: str
    err: str


@pytest.fixture
def steppe(capsys, steppe_registry):
    """Runs ``steppe ARGUMENTS`` in this process, on fake packages; returns its status, stdout and stderr."""
    from steppe.cli import main

    def run(*arguments: str) -> Result:
        return Result(main(arguments), *capsys.readouterr())

    return run


class _LeakCheck:
    """Fail the session if processes, mappings or shared memory remain at its end."""

    def __init__(self) -> None:
        self.files = _shared_files()
        self.mappings = _memfds()
        self.found: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        close()
        deadline = time.monotonic() + _PATIENCE
        gc.collect()
        while (processes := workers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.found = [f"process {pid}: {command}" for pid, command in processes.items()]
        self.found += [f"shared-memory file {name}" for name in sorted(_shared_files() - self.files)]
        # A failed test keeps its frames, and with them the environments in it.
        if not session.testsfailed and _memfds() > self.mappings:
            self.found.append(f"{_memfds() - self.mappings} shared mappings are open")
        if self.found:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.found:
            terminalreporter.section("left behind", red=True)
            for line in self.found:
                terminalreporter.line(line)


def pytest_configure(config: pytest.Config) -> None:
    if sys.platform == "linux":
        config.pluginmanager.register(_LeakCheck(), "leak-check")


def pytest_collection_finish() -> None:
    # Tests of leaks collect garbage, and each time would go through all that was imported: 0.2 s.
    gc.collect()
    gc.freeze()


def _shared_files() -> set[str]:
    # Elsewhere other programs of the same machine come and go there; a CI machine runs nothing else.
    mine = ("steppe", f"torch_{os.getpid()}_")
    every = os.environ.get("CI", "") not in ("", "0", "false")
    return {path.name for path in _SHM.glob("*") if every or path.name.startswith(mine)} if _SHM.is_dir() else set()


def _memfds() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(link).startswith("/memfd:")
        except OSError:
            continue
    return count
