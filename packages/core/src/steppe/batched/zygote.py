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
from typing import Any

from steppe.batched.channel import Connection, Gone
from steppe.batched.preload import load
from steppe.registry import list_plugins

__all__ = ["ForkServer", "fork_server"]


class ForkServer:
    """A clean process that forks workers on request. Ends when the process that started it does."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        code = f"from steppe.batched.zygote import serve; serve({theirs.fileno()})  # forkserver"
        paths = [path for path in sys.path if path]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=env
        )
        theirs.close()
        self.connection = Connection(ours)
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._preloaded: set[str] = set()
        weakref.finalize(self, _end, self.connection, self.process)

    def preload(self, modules: list[str]) -> None:
        """Let the server import modules, so that workers forked later have them."""
        new = [name for name in modules if name not in self._preloaded]
        if new:
            self._preloaded.update(new)
            with self._lock:
                self.connection.send(new)

    def fork(self, fds: list[int]) -> int:
        """Fork a worker that is given duplicates of ``fds``; returns its pid."""
        with self._lock:
            self.connection.send("fork", fds)
            pid, _ = self.connection.recv()
            return int(pid)


def _end(connection: Connection, process: Any) -> None:
    connection.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


_server: ForkServer | None = None
_guard = threading.Lock()


def fork_server() -> ForkServer:
    """The fork server of this process, started at the first call."""
    global _server
    with _guard:
        if _server is None or _server.pid != os.getpid() or _server.process.poll() is not None:
            _server = ForkServer()
        return _server


def serve(fd: int) -> None:
    """Fork workers until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)
    from steppe.batched.launch import begin

    connection = Connection.from_fd(fd)
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
    list_plugins()
    gc.collect()
    gc.freeze()
