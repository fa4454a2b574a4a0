"""Run programs of tests in forks of an interpreter that has imported torch.

``subprocess.run([*python(), "program.py"], ...)`` is ``subprocess.run([sys.executable, "program.py"], ...)`` in a fork
of an interpreter that has imported torch and tensordict, but not steppe. To test imports, or the cleanup of a process,
start an interpreter instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.limits import CHILD

__all__ = ["close", "python"]

_HERE = Path(__file__).parent
_SERVE = f"import sys; sys.path[0] = {str(_HERE)!r}; import server; del sys.path[0]; server.serve(sys.argv[1])"


class _Server:
    """The interpreter that is forked."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="forked-")
        self.path = str(Path(self.folder.name) / "socket")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", _SERVE, self.path], stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n", "the interpreter that is to be forked did not start"

    def close(self) -> None:
        self.process.communicate(timeout=CHILD)  # it ends with its input
        self.folder.cleanup()


_servers: dict[int, _Server] = {}


def python() -> list[str]:
    """The beginning of a command that runs a program, ``-m module`` or ``-c code``; of one process, and its threads."""
    if sys.platform != "linux":
        return [sys.executable]
    if os.getpid() not in _servers:
        _servers[os.getpid()] = _Server()
    return [sys.executable, "-I", "-S", str(_HERE / "client.py"), _servers[os.getpid()].path]


def close() -> None:
    """End the interpreter that is forked, if there is one."""
    server = _servers.pop(os.getpid(), None)
    if server is not None:
        server.close()
