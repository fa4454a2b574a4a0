"""Checks that batches leave nothing behind; scripts run as users run them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.core.batched.gates import Gate, wait_for
from tests.limits import AT_ONCE, CHILD

LEAN = "from steppe.imports import import_tensordict; import_tensordict()\n"


@pytest.fixture
def descendants() -> Callable[[], set[int]]:
    """Gives the processes below this one, zombies and the fork server excepted."""
    return lambda: _descendants(os.getpid())


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails a test after which there is a process, thread, descriptor or shared-memory file more than before it."""
    from steppe.workers import fork_server

    fork_server()
    before = _kept()
    yield
    deadline = time.monotonic() + AT_ONCE
    while more := {kind: now - before[kind] for kind, now in _kept().items() if now - before[kind]}:
        if time.monotonic() > deadline:
            break
        gc.collect()
    assert not more


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run scripts as ``programs``."""
    for item in items:
        if "run_script" in getattr(item, "fixturenames", ()):
            item.add_marker("programs")


@pytest.fixture
def run_script(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a script in a process group of its own, as a shell does; ``run_script(code, *arguments)`` is a Popen.

    The script runs as a user's does, but that it loads torch's compiler when it compiles: a second less for each.
    """
    started: list[Any] = []

    def run(code: str, *arguments: str, **kwargs: Any) -> Any:
        path = tmp_path / f"script_{len(started)}.py"
        path.write_text(LEAN + code)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        process = subprocess.Popen([sys.executable, str(path), *arguments], **{**options, **kwargs})
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait(CHILD)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        assert _gone(lambda pid=process.pid: _of_session(pid)), "the script left processes"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.open()


@pytest.fixture
def interrupt(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Press Ctrl-C for this process while another process waits at the gate.

    From another process, because this one waits.
    """
    children: list[int] = []

    def press(gate: Gate, times: int = 1, *, opens: bool = True) -> None:
        main = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                wait_for(gate.reached)
                for _ in range(times):
                    time.sleep(0.1)
                    os.kill(main, signal.SIGINT)
                if opens:
                    time.sleep(0.1)
                    gate.open()
            finally:
                os._exit(0)
        children.append(child)

    yield press
    for child in children:
        os.waitpid(child, 0)


def _gone(find: Callable[[], set[int]]) -> bool:
    deadline = time.monotonic() + AT_ONCE
    while find():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _stat() -> dict[int, list[str]]:
    """State, parent, group and session of each process that is no zombie."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if fields[0] != "Z":
            found[int(pid)] = fields
    return found


def _of_session(session: int) -> set[int]:
    return {pid for pid, fields in _stat().items() if int(fields[3]) == session}


def _descendants(pid: int) -> set[int]:
    parents = {child: int(fields[1]) for child, fields in _stat().items()}
    servers = {child for child, parent in parents.items() if (parent == pid and _is_server(child)) or _is_branch(child)}
    found, level = set(), {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level} - found
        found |= level
    return found - servers


def _is_server(pid: int) -> bool:
    try:
        return b"# forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _is_branch(pid: int) -> bool:
    """Whether a process holds modules of the caller for workers that are forked from it."""
    try:
        return Path(f"/proc/{pid}/comm").read_text() == "steppe-server\n"
    except OSError:
        return False


def _kept() -> dict[str, set[Any]]:
    from steppe.workers import fork_server

    descriptors = set()
    for fd in os.listdir("/proc/self/fd"):
        if int(fd) == fork_server().connection.fileno():
            continue  # it lives as long as this process
        try:
            descriptors.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
        except OSError:
            continue  # the folder's own
    return {
        "processes": _descendants(os.getpid()),
        "threads": set(threading.enumerate()),
        "descriptors": descriptors,
        "files": {name for name in os.listdir("/dev/shm") if "steppe" in name or f"_{os.getpid()}_" in name},
    }
