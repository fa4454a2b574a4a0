"""The processes that tests have started."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["workers"]


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
