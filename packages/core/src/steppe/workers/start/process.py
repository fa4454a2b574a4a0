"""Starts worker processes: forked from the fork server, spawned, or forked from the caller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from steppe.errors import ArgumentError, NotSupported, WorkerError
from steppe.systems import HAS_FORK, HAS_WORKERS
from steppe.workers.channel import forget_others
from steppe.workers.interrupts import held_back
from steppe.workers.start.entry import begin
from steppe.workers.start.fork_server import new_interpreter

__all__ = ["METHODS", "Process", "check_method", "launch"]

METHODS = ("forkserver", "spawn", "fork")


class Process:
    """A worker process.

    Args:
        pid: its process id.
        child: the Popen of a spawned child, True for a forked child, None if the fork server is the parent.
    """

    def __init__(self, pid: int, child: subprocess.Popen[bytes] | Literal[True] | None = None) -> None:
        self.pid = pid
        self._child = child

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait until the process has exited. Call this after it has closed its connection, just before its exit."""
        if self._child is True:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        elif self._child is not None:
            self._child.wait()


def check_method(method: str | None) -> str:
    """Return a valid start method; ``"forkserver"`` for None.

    Raises:
        ArgumentError: ``method`` is unknown.
        NotSupported: this system has no worker processes, or cannot fork.
    """
    if not HAS_WORKERS:
        raise NotSupported(
            f"steppe has no worker processes on this system ({sys.platform}), which cannot send file descriptors over "
            "sockets. Use SerialEnv(n, make), or "
            'AsyncEnvPool([make] * n, backend="threading") for environments that wait more than they compute.'
        )
    chosen = "forkserver" if method is None else method
    if chosen not in METHODS:
        raise ArgumentError(f"mp_start_method is one of {', '.join(map(repr, METHODS))}, found {method!r}.")
    if chosen != "spawn" and not HAS_FORK:
        raise NotSupported(f"mp_start_method={chosen!r} needs a system that forks. Use mp_start_method='spawn'.")
    return chosen


def launch(method: str, fds: list[int], fork: Callable[[list[int]], int] | None = None) -> Process:
    """Start a worker with duplicates of ``fds``.

    Args:
        method: one of ``METHODS``.
        fds: descriptors of the connection and the signals.
        fork: forks the worker from a server and returns its pid, for ``"forkserver"``.

    Raises:
        WorkerError: Python has no executable to start, or the server has ended.
    """
    if method == "spawn":
        return _spawn(fds)
    if fork is not None:
        return Process(fork(fds))
    return _fork(fds)


def _spawn(fds: list[int]) -> Process:
    if not sys.executable:
        raise WorkerError("This Python has no executable to start workers with. Use mp_start_method='fork'.")
    child = new_interpreter(f"from steppe.workers.start.entry import begin; begin({fds!r})", fds)
    return Process(child.pid, child)


def _fork(fds: list[int]) -> Process:
    with warnings.catch_warnings():
        # Python warns about forks of processes with threads. begin() calls set_num_threads(1), which torch needs then.
        warnings.simplefilter("ignore", DeprecationWarning)
        with held_back():
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
    if pid:
        return Process(pid, True)
    forget_others(fds)
    begin(fds)
    raise AssertionError("begin() never returns")
