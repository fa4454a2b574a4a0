"""The fork server: a process with torch and steppe loaded, which workers are forked from."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from steppe.errors import WorkerError
from steppe.registry import current
from steppe.versions import library_version
from steppe.workers.channel import Connection, Gone
from steppe.workers.start.preload import load

__all__ = ["ForkServer", "fork_server", "new_interpreter"]


class ForkServer:
    """A clean process that forks workers on request. Ends when the process that started it does.

    Args:
        modules: what it imports before it forks the first.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        code = (
            f"from steppe.workers.start.fork_server import serve; serve({theirs.fileno()}, {modules!r})  # forkserver"
        )
        try:
            self.process = new_interpreter(code, [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.connection = Connection(ours)
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._preloaded: set[str] = set(modules)
        weakref.finalize(self, _end, self.connection, self.process, self.pid)

    def preload(self, modules: Sequence[str]) -> None:
        """Let the server import modules, so that workers forked later have them."""
        new = [name for name in modules if name not in self._preloaded]
        if new:
            self._preloaded.update(new)
            with self._lock:
                try:
                    self.connection.send(new)
                except (Gone, OSError):
                    pass  # the next batch starts another server

    def fork(self, fds: list[int]) -> int:
        """Fork a worker that is given duplicates of ``fds``; returns its pid.

        Raises:
            WorkerError: the server has ended.
        """
        with self._lock:
            try:
                self.connection.send("fork", fds)
                pid, _ = self.connection.recv()
            except BaseException as error:
                # An answer that is still to come (Ctrl-C) would be taken for that of the next request.
                self.connection.close()
                self.process.kill()
                if not isinstance(error, (Gone, OSError)):
                    raise
                raise WorkerError(
                    f"The fork server (process {self.process.pid}) ended unexpectedly: its error may be printed above. "
                    "The next batch starts a new one; mp_start_method='spawn' does without."
                ) from error
            return int(pid)

    @property
    def usable(self) -> bool:
        """Whether this process may ask it for workers."""
        return self.pid == os.getpid() and self.connection.fileno() >= 0 and self.process.poll() is None


def new_interpreter(code: str, fds: list[int]) -> subprocess.Popen[bytes]:
    """Start Python with the ``sys.path`` of this process and hand it ``fds``."""
    # The current folder, first on the path of python -c, may hold files that are named like libraries. And whoever
    # presses Ctrl-C while torch is loading wants to see one traceback.
    begin = (
        "import sys; sys.path[:] = filter(None, sys.path); "
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "from steppe.imports import import_tensordict; import_tensordict(); "
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen([sys.executable, "-c", begin + code], pass_fds=fds, stdin=subprocess.DEVNULL, env=env)


def _end(connection: Connection, process: Any, owner: int) -> None:
    if os.getpid() != owner:
        connection.close()  # a forked child's copy: the server is its parent's
        return
    connection.end()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_server: ForkServer | None = None
_guard = threading.Lock()


def fork_server(modules: Sequence[str] = ()) -> ForkServer:
    """The fork server of this process, started at the first call, with some modules loaded."""
    global _server
    with _guard:
        if _server is None or not _server.usable:
            _server = ForkServer(list(modules))
    _server.preload(modules)
    return _server


def serve(fd: int, modules: Sequence[str] = ()) -> None:
    """Import modules, then fork workers until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import numpy.random  # noqa: F401 - numpy imports it at its first use, which would be in each worker
    import torch

    torch.set_num_threads(1)
    from steppe.workers.start.entry import begin

    connection = Connection.from_fd(fd)
    load(modules)
    _settle()
    while True:
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break
        if not connection.poll(1.0):
            continue
        try:
            message, fds = connection.recv()
        except Gone:
            return
        if message != "fork":
            load(message)
            _settle()
            continue
        pid = os.fork()
        if pid == 0:
            connection.close()
            begin(fds)
        for received in fds:
            os.close(received)
        connection.send(pid)


def _settle() -> None:
    """Read the plugins' metadata, and keep the collector off what is loaded: each worker would copy those pages."""
    current().found()
    library_version("torch")  # loads what every look at a version needs
    gc.collect()
    gc.freeze()
