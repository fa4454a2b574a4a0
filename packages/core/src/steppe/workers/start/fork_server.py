"""ForkServer: the caller's end of a process that has imported torch and steppe, from which workers are forked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Collection, Sequence
from typing import Any

from steppe.errors import WorkerError
from steppe.workers.channel import Connection, Gone
from steppe.workers.interrupts import held_back
from steppe.workers.process_settings import ProcessSettings
from steppe.workers.start.preload import unsafe_roots

__all__ = ["IMPORT_TIMEOUT", "ForkServer", "fork_server", "new_interpreter"]


#: Seconds that the start of workers waits for the import of a module server; the workers' own import mostly takes less.
IMPORT_TIMEOUT = 5.0


class ForkServer:
    """A process without state of the caller that forks workers on request. It ends with the caller's process.

    Workers that need modules of the caller are forked from a *module server*: a fork of this process that has imported
    these modules.

    Args:
        modules: modules to import before the first fork.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        call = f"serve({theirs.fileno()}, {modules!r})"
        code = f"from steppe.workers.start.server_process import serve; {call}  # forkserver"
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
        """Have the server import modules, so that workers that are forked later start with them."""
        new = [name for name in modules if name not in self._preloaded]
        if new:
            self._preloaded.update(new)
            with self._lock:
                try:
                    self.connection.send(("preload", new))
                except (Gone, OSError):
                    pass  # the process has ended: the next pool notices, and starts another

    def module_server(self, names: Collection[str], *, wait: bool) -> tuple[str, ...]:
        """Return the key of a module server with the modules among ``names`` that are the caller's own, for ``fork``.

        The empty key stands for the server itself: workers then import these modules themselves. A module server that
        does not exist is started, and chosen the next time if this time does not wait for its import.

        Args:
            names: modules that workers need.
            wait: whether to wait for the import of a module server that is started. This does not wait if this process
                has imported a library that is unsafe to fork: the caller's modules may import it too.
        """
        wait = wait and not unsafe_roots(sys.modules)
        key: tuple[str, ...] = self._ask("choose", names, ProcessSettings.now(), IMPORT_TIMEOUT, wait)
        return key

    def fork(self, fds: list[int], key: tuple[str, ...] = ()) -> int:
        """Fork a worker with duplicates of ``fds`` from the module server with this key; returns its pid.

        Raises:
            WorkerError: the server has ended.
        """
        return int(self._ask("fork", key, fds=fds))

    def _ask(self, *request: object, fds: Sequence[int] = ()) -> Any:
        with self._lock:
            try:
                self.connection.send(request, fds)
                return self.connection.recv()[0]
            except BaseException as error:
                # After Ctrl-C, the next request would read the answer to this one.
                self.connection.close()
                self.process.kill()
                if not isinstance(error, (Gone, OSError)):
                    raise
                raise WorkerError(
                    f"The fork server (process {self.process.pid}) ended unexpectedly: its error may be printed above. "
                    "The next batch starts a new one; mp_start_method='spawn' does without."
                ) from error

    @property
    def usable(self) -> bool:
        """Whether this process can fork workers from it."""
        return self.pid == os.getpid() and self.connection.fileno() >= 0 and self.process.poll() is None


def new_interpreter(code: str, fds: list[int]) -> subprocess.Popen[bytes]:
    """Start Python with the ``sys.path`` of this process and duplicates of ``fds``."""
    # python -c puts the current folder first on the path, where files may be named like libraries: it is removed.
    # Ctrl-C is ignored from the start, because a traceback of each process's imports would be printed otherwise.
    begin = (
        "import sys; sys.path[:] = filter(None, sys.path); "
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT}); "
        "from steppe.imports import import_tensordict; import_tensordict(); "
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with held_back():
        return subprocess.Popen([sys.executable, "-c", begin + code], pass_fds=fds, stdin=subprocess.DEVNULL, env=env)


def _end(connection: Connection, process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        connection.close()  # this process is a forked child, and the server belongs to its parent
        return
    connection.end()
    try:
        process.wait(5)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
        process.wait()


_server: ForkServer | None = None
_guard = threading.Lock()


def fork_server(modules: Sequence[str] = ()) -> ForkServer:
    """Return the fork server of this process, which has imported these modules; the first call starts it."""
    global _server
    with _guard:
        if _server is None or not _server.usable:
            _server = ForkServer(list(modules))
    _server.preload(modules)
    return _server
