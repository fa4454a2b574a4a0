"""How a worker process comes to be: forked from the fork server, spawned anew, or forked from the caller."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from typing import Any

from steppe.batched.begin import begin
from steppe.batched.channel import forget_others
from steppe.batched.zygote import fork_server, new_interpreter
from steppe.errors import NotSupported, SpecError, WorkerError

__all__ = ["METHODS", "Process", "launch"]

METHODS = ("forkserver", "spawn", "fork")


class Process:
    """A worker process.

    Args:
        pid: its process id.
        child: how to wait for it: a Popen, True for a child that was forked, None where the fork server waits.
    """

    def __init__(self, pid: int, child: Any = None) -> None:
        self.pid = pid
        self._child = child

    def kill(self) -> None:
        """End it at once."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def reap(self) -> None:
        """Wait until it is gone, which must be soon: it has closed its connection."""
        if self._child is True:
            try:
                os.waitpid(self.pid, 0)
            except ChildProcessError:
                pass
        elif self._child is not None:
            self._child.wait()


def launch(method: str, fds: list[int]) -> Process:
    """Start a worker that is handed ``fds``.

    Raises:
        SpecError: there is no such method.
        NotSupported: this system cannot fork.
        WorkerError: there is no interpreter to start.
    """
    if method not in METHODS:
        raise SpecError(f"mp_start_method is one of {', '.join(map(repr, METHODS))}, found {method!r}.")
    if method == "spawn":
        return _spawn(fds)
    if not hasattr(os, "fork"):
        raise NotSupported(f"mp_start_method={method!r} needs a system that forks. Use mp_start_method='spawn'.")
    if method == "forkserver":
        return Process(fork_server().fork(fds))
    return _fork(fds)


def _spawn(fds: list[int]) -> Process:
    if not sys.executable:
        raise WorkerError("This Python has no executable to start workers with. Use mp_start_method='fork'.")
    child = new_interpreter(f"from steppe.batched.begin import begin; begin({fds!r})", fds)
    return Process(child.pid, child)


def _fork(fds: list[int]) -> Process:
    with warnings.catch_warnings():
        # Python warns of forking beside threads: begin() does the one thing that makes it safe for torch.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return Process(pid, True)
    forget_others(fds)
    begin(fds)
    raise AssertionError("a worker has no way back")
