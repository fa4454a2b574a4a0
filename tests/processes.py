"""The processes that tests have started, and calls in forked children."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.limits import CHILD

__all__ = ["in_child", "workers"]


def workers() -> dict[int, str]:
    """The processes below this one, but for the servers that live as long as it does."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: dict[int, str] = {}
    pending = [(pid, True) for pid in children.get(os.getpid(), [])]
    while pending:
        pid, direct = pending.pop()
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        # A worker is forked from the server and has its command line, so only a direct child is one; a fork of it that
        # holds modules of the caller has its name.
        server = (direct and ("forkserver" in command or "resource_tracker" in command)) or name == "steppe-server"
        if not server:
            found[pid] = command
        pending += [(child, False) for child in children.get(pid, [])]
    return found


def in_child(function: Any) -> str:
    """Return the result of a function in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(CHILD))
        try:
            text = function()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, str(text).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        found = pipe.read().decode()
    os.waitpid(pid, 0)
    return found
