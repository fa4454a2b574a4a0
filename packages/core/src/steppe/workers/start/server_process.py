"""The process of the fork server: imports modules, and forks workers from itself or from its module servers."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from steppe.systems import name_process
from steppe.versions import library_version
from steppe.workers.channel import Connection, Gone, forget_others
from steppe.workers.process_settings import ProcessSettings
from steppe.workers.start.caller_modules import ImportResult, import_modules
from steppe.workers.start.entry import begin
from steppe.workers.start.preload import load, load_plugins, modules_of_caller

__all__ = ["serve"]

#: Limit on the number of module servers.
_MAX_MODULE_SERVERS = 3

_Key = tuple[str, ...]


def serve(fd: int, modules: Sequence[str] = ()) -> None:
    """Import modules, then fork workers until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import numpy.random  # noqa: F401 - numpy imports it lazily, which would happen in each worker
    import torch

    torch.set_num_threads(1)
    name_process("steppe-server")
    load(modules)
    _settle()
    _Server(Connection.from_fd(fd)).run()


class _Server:
    """Carry out the requests of the other end of a connection; each request is the name of a method, and arguments.

    Args:
        connection: connection to the caller; in a module server, to the fork server.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._module_servers: dict[_Key, _ModuleServer] = {}

    def run(self) -> None:
        """Serve until the other end closes."""
        requests: dict[str, Callable[..., None]] = {
            "preload": self._preload,
            "choose": self._choose,
            "fork": self._fork,
        }
        while True:
            self._reap()
            if not self._connection.poll(1.0):
                continue
            try:
                (request, *arguments), fds = self._connection.recv()
            except Gone:
                break
            requests[request](*arguments, fds)
        for server in self._module_servers.values():
            server.kill()
        self._connection.close()

    def _reap(self) -> None:
        try:
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                for server in self._module_servers.values():
                    server.note_end(pid)
        except ChildProcessError:
            pass

    def _preload(self, names: list[str], fds: list[int]) -> None:
        """Import modules of plugins and of their libraries, here and in the module servers."""
        for server in self._module_servers.values():
            server.preload(names)
        load(names)
        _settle()

    def _choose(
        self, names: Collection[str], settings: ProcessSettings, timeout: float, wait: bool, fds: list[int]
    ) -> None:
        """Send the key of a module server with the ``names`` that are the caller's own; ``()`` if there is none.

        If there is no such module server, one is started. It can be used if its import ends within ``timeout``, and
        this time if ``wait`` is True.
        """
        key = tuple(modules_of_caller(names))
        usable = False
        if key:
            server = self._module_servers.pop(key, None)
            if server is None or not server.is_current(settings):
                replaced = [server] if server is not None else []
                while len(self._module_servers) >= _MAX_MODULE_SERVERS:
                    replaced.append(self._module_servers.pop(next(iter(self._module_servers))))
                for each in replaced:
                    each.kill()
                server = _ModuleServer(key, settings)
                timeout = timeout if wait else 0.0
            self._module_servers[key] = server
            usable = server.is_usable(timeout)
        self._connection.send(key if usable else ())

    def _fork(self, key: _Key, fds: list[int]) -> None:
        """Fork a worker with these descriptors, from a module server if it can, and send its pid."""
        server = self._module_servers.get(key)
        pid = None if server is None else server.fork(fds)
        if pid is None:
            pid = os.fork()
            if pid == 0:
                forget_others(fds)
                begin(fds)
        for fd in fds:
            os.close(fd)
        self._connection.send(pid)


class _ModuleServer:
    """A fork of the fork server that has imported modules of the caller, for workers that need them.

    The fork server itself does not import them. If they turn out to be unsafe to fork, or are edited later, only the
    module server is killed.

    Args:
        names: the modules.
        settings: the caller's settings, with which it imports.
    """

    def __init__(self, names: Collection[str], settings: ProcessSettings) -> None:
        self._settings = settings
        self._result: ImportResult | None = None
        self._connection, theirs = Connection.pair()
        self._pid: int | None = os.fork()
        if self._pid == 0:
            forget_others([theirs.fileno()])
            _serve_with_modules(theirs, list(names), settings)
        theirs.close()

    def is_usable(self, timeout: float) -> bool:
        """Wait for the end of the import; returns whether workers may be forked, and the process still runs."""
        if self._result is None and self._connection.poll(timeout):
            try:
                self._result = self._connection.recv()[0]
            except (Gone, OSError):
                self._result = ImportResult(False, {})
        return self._result is not None and self._result.is_safe and not self._connection.poll(0)

    def is_current(self, settings: ProcessSettings) -> bool:
        """Whether a new process with these settings would be no better, even if no workers may be forked from this."""
        usable = self.is_usable(0)
        if self._settings != settings:
            return False
        return self._result is None or (self._result.is_current and (usable or not self._result.is_safe))

    def preload(self, names: list[str]) -> None:
        """Import more modules."""
        try:
            self._connection.send(("preload", names))
        except (Gone, OSError):
            pass  # it has ended

    def fork(self, fds: list[int]) -> int | None:
        """Fork a worker with duplicates of ``fds``; returns its pid, None if this process has ended."""
        try:
            self._connection.send(("fork", ()), fds)
            return int(self._connection.recv()[0])
        except (Gone, OSError):
            return None

    def note_end(self, pid: int) -> None:
        """Note that a child of the fork server has ended: another process may get its pid from now on."""
        if self._pid == pid:
            self._pid = None

    def kill(self) -> None:
        """Kill the process."""
        self._connection.close()
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)


def _serve_with_modules(connection: Connection, names: list[str], settings: ProcessSettings) -> NoReturn:
    """Import modules of the caller, send the result, and fork workers; see :class:`_ModuleServer`."""
    try:
        settings.apply()
        # SciPy, for example, loads a BLAS library of its own, whose threads would forbid forks.
        for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ.setdefault(variable, "1")
        result = import_modules(names)
        connection.send(result)
        if result.is_safe:
            _settle()
            _Server(connection).run()
    except (Gone, OSError):
        pass  # the fork server has ended
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _settle() -> None:
    """Load plugins, and freeze the garbage collector: its writes would copy pages in each worker."""
    load_plugins()
    library_version("torch")  # imports the modules that every version check needs
    gc.collect()
    gc.freeze()
