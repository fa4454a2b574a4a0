"""The fork server: a process with torch and steppe loaded, which workers are forked from."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from typing import Any

from steppe.batched.channel import Connection, Gone

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
        weakref.finalize(self, _end, self.connection, self.process)

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
    from steppe.batched.worker import work

    connection = Connection.from_fd(fd)
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
            _, fds = connection.recv()
        except Gone:
            return
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                connection.close()
                torch.set_num_threads(1)
                work(fds)
                status = 0
            finally:
                os._exit(status)
        for received in fds:
            os.close(received)
        connection.send(pid)
