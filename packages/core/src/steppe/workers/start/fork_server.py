"""The fork server: a process with torch and steppe loaded, which workers are forked from."""

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
from steppe.workers.start.own_modules import Surroundings, Verdict, import_own, is_current
from steppe.workers.start.preload import load

__all__ = ["BRANCH_PATIENCE", "Branch", "ForkServer", "Forking", "fork_server", "new_interpreter"]


#: How many sets of the caller's own modules are held ready, each by a process.
_MOST_BRANCHES = 3

#: Seconds that a start waits for a branch that still imports: longer than its workers would take themselves.
BRANCH_PATIENCE = 5.0


class Forking:
    """The caller's side of a process that forks workers on request.

    Args:
        connection: to that process.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def fork(self, fds: list[int]) -> int:
        """Fork a worker that is given duplicates of ``fds``; returns its pid.

        Raises:
            WorkerError: the process has ended.
        """
        with self._lock:
            try:
                self.connection.send("fork", fds)
                pid, _ = self.connection.recv()
            except BaseException as error:
                # An answer that is still to come (Ctrl-C) would be taken for that of the next request.
                self.kill()
                if not isinstance(error, (Gone, OSError)):
                    raise
                raise WorkerError(
                    f"The fork server (process {self.number}) ended unexpectedly: its error may be printed above. "
                    "The next batch starts a new one; mp_start_method='spawn' does without."
                ) from error
            return int(pid)

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Send a message that is not answered."""
        with self._lock:
            try:
                self.connection.send(message, fds)
            except (Gone, OSError):
                pass  # it has ended: the next batch finds out, and starts another

    @property
    def number(self) -> int | None:
        """The process id, where it is known."""
        raise NotImplementedError

    def kill(self) -> None:
        """End it at once."""
        raise NotImplementedError


class Branch(Forking):
    """A fork of the fork server that has imported modules of the caller, for workers that need them.

    The server itself stays clean of them: where they turn out to be unsafe to fork, or are edited, the branch is given
    up and the server is not.

    Args:
        connection: to the branch, which says its pid first and, once it has imported, a :class:`Verdict`.
        surroundings: those in which it imports.
    """

    def __init__(self, connection: Connection, surroundings: Surroundings) -> None:
        super().__init__(connection)
        self._pid: int | None = None
        self._surroundings = surroundings
        self._verdict: Verdict | None = None

    def is_current(self, now: Surroundings) -> bool:
        """Whether what it has imported is what a worker would import now; waits for the import."""
        try:
            end = time.monotonic() + BRANCH_PATIENCE
            while self._verdict is None:
                if not self.connection.poll(end - time.monotonic()):
                    return False
                self._hear()
        except (Gone, OSError):
            return False
        return is_current(self._verdict, self._surroundings, now)

    @property
    def usable(self) -> bool:
        """Whether workers may be forked from it: its import left nothing that forbids it, and it has not ended."""
        if self._verdict is None or self._verdict.problem:
            return False
        with self._lock:  # another thread may be about to read the answer to its request
            return self.connection.fileno() >= 0 and not self.connection.poll(0)

    def is_worth_keeping(self, now: Surroundings) -> bool:
        """Whether another one would be no better: it still imports, is usable, or has found that nobody is."""
        if self._verdict is None:
            return not self.connection.poll(0)
        return (self.usable or bool(self._verdict.problem)) and is_current(self._verdict, self._surroundings, now)

    def _hear(self) -> None:
        said, _ = self.connection.recv()
        if self._pid is None:
            self._pid = said
        else:
            self._verdict = Verdict(*said)
            if self._verdict.problem:
                self.connection.close()

    def fork(self, fds: list[int]) -> int:
        try:
            return super().fork(fds)
        except WorkerError:
            return fork_server().fork(fds)  # where the worker imports for itself

    @property
    def number(self) -> int | None:
        return self._pid

    def kill(self) -> None:
        if self.connection.fileno() < 0:
            return
        try:
            if self._pid is None and self.connection.poll(0):
                self._hear()
            # It is no child of this process: while the connection is there, so is the number.
            if self._pid is not None and not self.connection.poll(0):
                os.kill(self._pid, signal.SIGKILL)
        except (Gone, OSError):
            pass
        self.connection.end()


class ForkServer(Forking):
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
        super().__init__(Connection(ours))
        self.pid = os.getpid()
        self._preloaded: set[str] = set(modules)
        self._branches: dict[frozenset[str], Branch] = {}
        self._choosing = threading.Lock()
        weakref.finalize(self, _end, self.connection, self.process, self.pid, self._branches)

    def preload(self, modules: Sequence[str]) -> None:
        """Let the server import modules, so that workers forked later have them."""
        new = [name for name in modules if name not in self._preloaded]
        if new:
            self._preloaded.update(new)
            for each in (self, *self._branches.values()):
                each.send(new)

    def branch_off(self, names: Collection[str]) -> None:
        """Have modules of the caller imported by a fork of the server, for the next workers that need them.

        Returns at once. Where the import starts a thread, for example, the next workers import for themselves.
        """
        key, surroundings = frozenset(names), Surroundings.now()
        with self._choosing:
            known = self._branches.pop(key, None)
            if known is not None and known.is_worth_keeping(surroundings):
                self._branches[key] = known
                return
            if known is not None:
                known.kill()
            while len(self._branches) >= _MOST_BRANCHES:
                self._branches.pop(next(iter(self._branches))).kill()
            ours, theirs = Connection.pair()
            with closing(theirs):
                self.send(("branch", sorted(names), tuple(surroundings)), [theirs.fileno()])
            self._branches[key] = Branch(ours, surroundings)

    def with_modules(self, names: Collection[str]) -> tuple[Forking, frozenset[str]]:
        """The branch that has imported most of these modules as they are now, and which; or the server itself."""
        with self._choosing:
            keys = [key for key in self._branches if key <= frozenset(names)]
            now = Surroundings.now() if keys else None
            for key in sorted(keys, key=len, reverse=True):
                branch = self._branches[key]
                if now is not None and branch.is_current(now) and branch.usable:
                    return branch, key
        return self, frozenset()

    @property
    def usable(self) -> bool:
        """Whether this process may ask it for workers."""
        return self.pid == os.getpid() and self.connection.fileno() >= 0 and self.process.poll() is None

    @property
    def descriptors(self) -> list[int]:
        """What this process has open for it, and for its branches."""
        return [each.connection.fileno() for each in (self, *self._branches.values())]

    @property
    def number(self) -> int | None:
        return self.process.pid

    def kill(self) -> None:
        self.connection.close()
        self.process.kill()


def new_interpreter(code: str, fds: list[int]) -> subprocess.Popen[bytes]:
    """Start Python with the ``sys.path`` of this process and hand it ``fds``."""
    # The current folder, first on the path of python -c, may hold files that are named like libraries. And whoever
    # presses Ctrl-C while torch is loading wants to see one traceback.
    begin = (
        "import sys; sys.path[:] = filter(None, sys.path); "
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT}); "
        "from steppe.imports import import_tensordict; import_tensordict(); "
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with held_back():
        return subprocess.Popen([sys.executable, "-c", begin + code], pass_fds=fds, stdin=subprocess.DEVNULL, env=env)


def _end(connection: Connection, process: Any, owner: int, branches: dict[frozenset[str], Branch]) -> None:
    if os.getpid() != owner:
        for each in (connection, *(branch.connection for branch in branches.values())):
            each.close()  # a forked child's copy: the server is its parent's
        return
    for branch in branches.values():
        branch.kill()
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
    name_process("steppe-server")
    load(modules)
    _settle()
    _serve(Connection.from_fd(fd))


def _serve(connection: Connection) -> None:
    """Do what the caller asks for, until it closes the connection."""
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
            _branch(Connection.from_fd(fds[0]), *message[1:])
        for received in fds:
            os.close(received)
        if message == "fork":
            connection.send(pid)


def _branch(connection: Connection, names: list[str], surroundings: tuple[Any, ...]) -> NoReturn:
    """Import modules of the caller, say what came of it, and fork workers that have them."""
    try:
        connection.send(os.getpid())
        Surroundings(*surroundings).apply()
        verdict = import_own(names)
        if not verdict.problem:
            _settle()
        connection.send(tuple(verdict))
        if not verdict.problem:
            _serve(connection)
    except (Gone, OSError):
        pass  # the caller has ended, or given the branch up
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def _settle() -> None:
    """Read the plugins' metadata, and keep the collector off what is loaded: each worker would copy those pages."""
    current().found()
    library_version("torch")  # loads what every look at a version needs
    gc.collect()
    gc.freeze()
