"""The fork server: a process that has imported torch and steppe, from which workers are forked."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import Any, NoReturn

from steppe.errors import WorkerError
from steppe.registry import current
from steppe.systems import name_process
from steppe.versions import library_version
from steppe.workers.channel import Connection, Gone
from steppe.workers.interrupts import held_back
from steppe.workers.process_settings import ProcessSettings
from steppe.workers.start.caller_modules import ImportResult, import_modules, is_current
from steppe.workers.start.preload import load

__all__ = ["IMPORT_TIMEOUT", "ForkServer", "Forking", "ModuleServer", "fork_server", "new_interpreter"]


#: Limit on the number of module servers.
_MAX_MODULE_SERVERS = 3

#: Seconds that the start of workers waits for the import of a module server; the workers' own import mostly takes less.
IMPORT_TIMEOUT = 5.0


class Forking:
    """The caller's end of a process that forks workers on request.

    Args:
        connection: connection to that process.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def fork(self, fds: list[int]) -> int:
        """Fork a worker with duplicates of ``fds``; returns its pid.

        Raises:
            WorkerError: the process has ended.
        """
        with self._lock:
            try:
                self.connection.send("fork", fds)
                pid, _ = self.connection.recv()
            except BaseException as error:
                # After Ctrl-C, the next request would read the answer to this one.
                self.kill()
                if not isinstance(error, (Gone, OSError)):
                    raise
                raise WorkerError(
                    f"The fork server (process {self.process_id}) ended unexpectedly: its error may be printed above. "
                    "The next batch starts a new one; mp_start_method='spawn' does without."
                ) from error
            return int(pid)

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message that needs no answer."""
        with self._lock:
            try:
                self.connection.send(message, fds)
            except (Gone, OSError):
                pass  # the process has ended: the next pool notices, and starts another

    @property
    def process_id(self) -> int | None:
        """The process id, or None if it is not known yet."""
        raise NotImplementedError

    def kill(self) -> None:
        """Kill the process."""
        raise NotImplementedError


class ModuleServer(Forking):
    """A fork of the fork server that has imported modules of the caller, for workers that need them.

    The fork server itself does not import them. If they turn out to be unsafe to fork, or are edited later, only the
    module server is killed.

    Args:
        connection: connection to the process, which sends its pid and, after the import, an :class:`ImportResult`.
        settings: the settings with which it imports.
    """

    def __init__(self, connection: Connection, settings: ProcessSettings) -> None:
        super().__init__(connection)
        self._pid: int | None = None
        self._settings = settings
        self._result: ImportResult | None = None

    def is_current(self, now: ProcessSettings) -> bool:
        """Whether a worker would import the same modules now; waits for the import to end."""
        try:
            end = time.monotonic() + IMPORT_TIMEOUT
            while self._result is None:
                if not self.connection.poll(end - time.monotonic()):
                    return False
                self._receive()
        except (Gone, OSError):
            return False
        return is_current(self._result, self._settings, now)

    @property
    def usable(self) -> bool:
        """Whether workers may be forked: the import has ended, showed no problem, and the process still runs."""
        if self._result is None or self._result.problem:
            return False
        with self._lock:  # another thread may be about to read the answer to its request
            return self.connection.fileno() >= 0 and not self.connection.poll(0)

    def is_worth_keeping(self, now: ProcessSettings) -> bool:
        """Whether a new process would be no better: this one is importing or usable, or no process could be used."""
        if self._result is None:
            return not self.connection.poll(0)
        return (self.usable or bool(self._result.problem)) and is_current(self._result, self._settings, now)

    def _receive(self) -> None:
        message, _ = self.connection.recv()
        if self._pid is None:
            self._pid = message
        else:
            self._result = ImportResult(*message)
            if self._result.problem:
                self.connection.close()

    def fork(self, fds: list[int]) -> int:
        try:
            return super().fork(fds)
        except WorkerError:
            return fork_server().fork(fds)  # there the worker imports the modules itself

    @property
    def process_id(self) -> int | None:
        return self._pid

    def kill(self) -> None:
        if self.connection.fileno() < 0:
            return
        try:
            if self._pid is None and self.connection.poll(0):
                self._receive()
            # It is no child of this process, so its pid is only known to be its own while the connection is open.
            if self._pid is not None and not self.connection.poll(0):
                os.kill(self._pid, signal.SIGKILL)
        except (Gone, OSError):
            pass
        self.connection.end()


class ForkServer(Forking):
    """A process without state of the caller that forks workers on request. It ends with the caller's process.

    Args:
        modules: modules to import before the first fork.
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
        super().__init__(Connection(ours))
        self.pid = os.getpid()
        self._preloaded: set[str] = set(modules)
        self._module_servers: dict[frozenset[str], ModuleServer] = {}
        self._choosing = threading.Lock()
        weakref.finalize(self, _end, self.connection, self.process, self.pid, self._module_servers)

    def preload(self, modules: Sequence[str]) -> None:
        """Have the server import modules, so that workers that are forked later start with them."""
        new = [name for name in modules if name not in self._preloaded]
        if new:
            self._preloaded.update(new)
            for each in (self, *self._module_servers.values()):
                each.send(new)

    def start_module_server(self, names: Collection[str]) -> None:
        """Start a fork of the server that imports modules of the caller, for the next workers that need them.

        Returns at once. If the import starts a thread, for example, the next workers import the modules themselves.
        """
        key, settings = frozenset(names), ProcessSettings.now()
        with self._choosing:
            known = self._module_servers.pop(key, None)
            if known is not None and known.is_worth_keeping(settings):
                self._module_servers[key] = known
                return
            if known is not None:
                known.kill()
            while len(self._module_servers) >= _MAX_MODULE_SERVERS:
                self._module_servers.pop(next(iter(self._module_servers))).kill()
            ours, theirs = Connection.pair()
            with closing(theirs):
                self.send(("import", sorted(names), tuple(settings)), [theirs.fileno()])
            self._module_servers[key] = ModuleServer(ours, settings)

    def with_modules(self, names: Collection[str]) -> tuple[Forking, frozenset[str]]:
        """Return the module server with most of these modules, and which it has; the server itself if none has any."""
        with self._choosing:
            keys = [key for key in self._module_servers if key <= frozenset(names)]
            now = ProcessSettings.now() if keys else None
            for key in sorted(keys, key=len, reverse=True):
                server = self._module_servers[key]
                if now is not None and server.is_current(now) and server.usable:
                    return server, key
        return self, frozenset()

    @property
    def usable(self) -> bool:
        """Whether this process can fork workers from it."""
        return self.pid == os.getpid() and self.connection.fileno() >= 0 and self.process.poll() is None

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the connections to it and to its module servers."""
        return [each.connection.fileno() for each in (self, *self._module_servers.values())]

    @property
    def process_id(self) -> int | None:
        return self.process.pid

    def kill(self) -> None:
        self.connection.close()
        self.process.kill()


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


def _end(
    connection: Connection,
    process: subprocess.Popen[bytes],
    owner: int,
    module_servers: dict[frozenset[str], ModuleServer],
) -> None:
    if os.getpid() != owner:
        for each in (connection, *(server.connection for server in module_servers.values())):
            each.close()  # this process is a forked child, and the server belongs to its parent
        return
    for server in module_servers.values():
        server.kill()
    connection.end()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
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


def serve(fd: int, modules: Sequence[str] = ()) -> None:
    """Import modules, then fork workers until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import numpy.random  # noqa: F401 - numpy imports it lazily, which would happen in each worker
    import torch

    torch.set_num_threads(1)
    name_process("steppe-server")
    load(modules)
    _settle()
    _serve(Connection.from_fd(fd))


def _serve(connection: Connection) -> None:
    """Carry out the requests of the caller, until it closes the connection."""
    from steppe.workers.start.entry import begin

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
        if isinstance(message, list):
            load(message)
            _settle()
            continue
        pid = os.fork()
        if pid == 0:
            connection.close()
            if message == "fork":
                begin(fds)
            _serve_with_modules(Connection.from_fd(fds[0]), *message[1:])
        for received in fds:
            os.close(received)
        if message == "fork":
            connection.send(pid)


def _serve_with_modules(connection: Connection, names: list[str], settings: tuple[Any, ...]) -> NoReturn:
    """Import modules of the caller, send the result, and fork workers; see :class:`ModuleServer`."""
    try:
        connection.send(os.getpid())
        ProcessSettings(*settings).apply()
        result = import_modules(names)
        if not result.problem:
            _settle()
        connection.send(tuple(result))
        if not result.problem:
            _serve(connection)
    except (Gone, OSError):
        pass  # the caller has ended, or killed this process
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _settle() -> None:
    """Read the plugins' metadata, and freeze the garbage collector: its writes would copy pages in each worker."""
    current().found()
    library_version("torch")  # imports the modules that every version check needs
    gc.collect()
    gc.freeze()
