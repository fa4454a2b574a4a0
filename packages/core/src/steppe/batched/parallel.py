"""ParallelEnv: a batch that worker processes step."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
import weakref
from typing import Any

import cloudpickle
import torch

from steppe.batched.base import BatchedEnv
from steppe.batched.board import ACK, COMMAND, CURRENT, FAILED, N_RESET, OP, PARTIAL, Board
from steppe.batched.by_value import pickled
from steppe.batched.channel import Connection, Gone, Signal, SpinGate, Waiter, usable_cores
from steppe.batched.worker import RESET, STEP, STEP_AND_RESET
from steppe.batched.zygote import fork_server
from steppe.errors import ClosedError, WorkerError, WorkerTimeout
from steppe.registry import worker_state
from steppe.storage import Storage
from steppe.versions import effective_backends

__all__ = ["ParallelEnv"]

# How long a worker may take to close its environments, and after a failure, when it may well hang.
_PATIENCE = 5.0
_PATIENCE_AFTER_FAILURE = 0.5

_OPS = {"step": STEP, "step_and_reset": STEP_AND_RESET, "reset": RESET}


class ParallelEnv(BatchedEnv):
    """A batch whose environments are stepped by worker processes, several in each.

    Workers are forked from a server that has torch and steppe loaded, is started by the first ParallelEnv, and ends
    with this process. The main script is not run again: no ``if __name__ == "__main__"`` is needed. Factories travel by
    value, so lambdas and closures work. A worker is given the environment variables, ``sys.path``, the current folder,
    warning filters, the default dtype, backends and hidden or registered plugins as they are when it starts.

    A step is one round trip: actions are written into shared memory, workers write rows and reset those that ended.

    Args:
        num_workers: how many environments.
        create_env_fn: see :class:`BatchedEnv`.
        num_processes: how many processes share them; one for each usable core by default.
        step_timeout: seconds that a step or reset may take; None for no limit.
        **kwargs: for :class:`BatchedEnv`.

    Raises:
        WorkerError: an environment raised, with the traceback, worker and environment, or its process ended. The other
            workers are stopped too; ``close`` is all that is left to call.
        WorkerTimeout: ``step_timeout`` passed.
        ClosedError: a use after such an error.
    """

    def __init__(
        self,
        num_workers: int,
        create_env_fn: Any,
        *,
        num_processes: int | None = None,
        step_timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_workers, create_env_fn, **kwargs)
        self.__dict__["num_processes"] = min(num_workers, num_processes or usable_cores())
        self.__dict__["step_timeout"] = step_timeout
        self.__dict__["_crew"] = None

    def _open(self) -> None:
        n, p = self.num_workers, self.num_processes
        sizes = [n // p + (w < n % p) for w in range(p)]
        firsts = [sum(sizes[:w]) for w in range(p)]
        bounds = [(first, first + size) for first, size in zip(firsts, sizes, strict=True)]
        crew = _Crew(bounds)
        finalizer = weakref.finalize(self, crew.stop)
        self.__dict__["_crew"], self.__dict__["_finalizer"] = crew, finalizer
        self.__dict__["_bounds"] = bounds
        try:
            surroundings = _surroundings()
            for w in range(p):
                factories = pickled(self._factories[firsts[w] : firsts[w] + sizes[w]])
                crew.connections[w].send(
                    {"worker": w, "first_row": firsts[w], "factories": factories, "surroundings": surroundings}
                )
            specs: list[Any] = []
            sizes: list[Any] = []
            on_arrays = True
            for w in range(p):
                _, found, batches, array_path, modules = crew.expect(w, "ready")
                specs, sizes, on_arrays = specs + found, sizes + batches, on_arrays and array_path
                if w == 0:
                    fork_server().preload(modules)
            self._check_alike(specs, sizes)
            row = self._lay_out(specs[0])
            if row is None:
                for connection in crew.connections:
                    connection.send((None, n, p, 0))
                for w in range(p):
                    crew.expect(w, "attached")
                return
            storage = Storage(row, (n,), kind="shared")
            handle = storage.handle()
            fd = os.memfd_create("steppe-board", os.MFD_CLOEXEC)
            try:
                os.ftruncate(fd, Board.nbytes(p, n))
                board = Board.shared(p, n, fd)
                for connection in crew.connections:
                    connection.send((handle.spec, n, p, handle.nbytes), [handle.fd, fd])
                for w in range(p):
                    crew.expect(w, "attached")
            finally:
                os.close(fd)
            crew.board = board
            self._use(storage, board.was_reset, on_arrays=on_arrays)
        except BaseException:
            self._stop(_PATIENCE_AFTER_FAILURE)
            raise

    def _run(self, op: str, rows: list[int] | None, infos: list[Any] | None = None) -> int:
        if self._crew is None:
            raise ClosedError("The workers of this ParallelEnv were stopped after an error: close it, make a new one.")
        try:
            board = self._crew.board
            active = None
            if rows is not None:
                board.active[:] = False
                board.active[rows] = True
                active = [bool(board.active[a:b].any()) for a, b in self._bounds]
            return self._crew.round(_OPS[op], active, self.step_timeout)
        except BaseException:
            # Rows may be half-written and a worker gone: nothing of this batch can be used any more.
            self._stop(_PATIENCE_AFTER_FAILURE)
            raise

    def _exchange(self, op: str, data: dict[int, Any]) -> dict[int, Any]:
        crew = self._crew
        if crew is None:
            raise ClosedError("The workers of this ParallelEnv were stopped after an error: close it, make a new one.")
        found: dict[int, Any] = {}
        try:
            busy = []
            for w, (a, b) in enumerate(self._bounds):
                part = {row: td for row, td in data.items() if a <= row < b}
                if part:
                    crew.connections[w].send(("rows", op, part))
                    busy.append(w)
            for w in busy:
                found.update(crew.expect(w, "done")[1])
        except BaseException:
            self._stop(_PATIENCE_AFTER_FAILURE)
            raise
        return found

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty before the start and after the end."""
        return list(self._crew.pids) if self._crew is not None else []

    def _stop(self, patience: float = _PATIENCE) -> None:
        finalizer = self.__dict__.pop("_finalizer", None)
        if finalizer is not None and finalizer.detach() is not None:
            crew, self.__dict__["_crew"] = self._crew, None
            crew.stop(patience)
            self._forget_storage()

    def _seed_rows(self, seeds: list[Any]) -> None:
        crew = self._crew
        for (a, b), connection in zip(self._bounds, crew.connections, strict=True):
            connection.send(("seed", seeds[a:b]))
        for w in range(len(crew.connections)):
            crew.expect(w, "done")

    def close(self, *, raise_if_closed: bool = True) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._stop()


class _Crew:
    """The worker processes of one batch."""

    def __init__(self, bounds: list[tuple[int, int]]) -> None:
        n = len(bounds)
        self.bounds = bounds
        server = fork_server()
        self.pids, self.connections, self.wakes, self.answers = [], [], [], []
        self.board: Any = None
        self.serial = 0
        self.pid = os.getpid()
        for _ in range(n):
            ours, theirs = Connection.pair()
            wake, answer = Signal.create(), Signal.create()
            self.pids.append(server.fork([theirs.fileno(), *wake.fds, *answer.fds]))
            theirs.close()
            self.connections.append(ours)
            self.wakes.append(wake)
            self.answers.append(answer)
        self.setters = [wake.setter() for wake in self.wakes]
        self.waiters = [Waiter(answer, self.connections) for answer in self.answers]
        self.gate = SpinGate(n + 1)

    def expect(self, worker: int, kind: str) -> Any:
        try:
            message, _ = self.connections[worker].recv()
        except Gone:
            raise self.ended(worker) from None
        if message[0] == "failed":
            self.fail(worker, message)
        return message

    def fail(self, worker: int, message: Any) -> None:
        _, row, doing, (summary, text) = message
        where = f"environment {row}" if row is not None else "its environments"
        raise WorkerError(
            f"Worker {worker} raised in {doing} of {where}: {summary}\n\n{text}",
            worker=worker,
            env=row,
            remote_traceback=text,
        )

    def round(self, op: int, active: list[bool] | None, timeout: float | None) -> int:
        words = self.board.words
        self.serial += 1
        serial = self.serial
        busy = []
        for w, wake in enumerate(self.setters):
            if active is not None and not active[w]:
                continue
            base = Board.base(w)
            words[base + OP] = op
            words[base + PARTIAL] = active is not None
            words[base + COMMAND] = serial
            wake()
            busy.append(base + ACK)

        def ready() -> bool:
            return all(words[ack] == serial for ack in busy)

        if not self.gate.spin(ready):
            end = None if timeout is None else time.monotonic() + timeout
            # The last one woken is the last to answer, mostly: one wake-up of this process is then enough.
            for ack in reversed(busy):
                waiter = self.waiters[ack // 16]
                while words[ack] != serial:
                    gone = waiter.wait(None if end is None else end - time.monotonic())
                    if words[ack] == serial:
                        break
                    if gone:
                        self.died(gone[0])
                    if end is not None and time.monotonic() >= end:
                        w = next(ack // 16 for ack in busy if words[ack] != serial)
                        row, name = self.at_work(w)
                        raise WorkerTimeout(
                            f"Worker {w}, at work on {name}, did not answer within {timeout} s.", worker=w, env=row
                        )
        total = 0
        for ack in busy:
            if words[ack - ACK + FAILED]:
                self.expect(ack // 16, "failed")
            total += words[ack - ACK + N_RESET]
        return total

    def died(self, fd: int) -> None:
        worker = next(w for w, c in enumerate(self.connections) if c.fileno() == fd)
        try:
            message, _ = self.connections[worker].recv()
        except Gone:
            raise self.ended(worker) from None
        self.fail(worker, message)

    def ended(self, worker: int) -> WorkerError:
        """The error of a worker that is no longer there."""
        row, name = self.at_work(worker)
        return WorkerError(
            f"Worker {worker} (process {self.pids[worker]}) ended without a word, at work on {name}: "
            "it was killed, or a library crashed.",
            worker=worker,
            env=row,
        )

    def at_work(self, worker: int) -> tuple[int | None, str]:
        """The environment that a worker is at, None between steps, and how to call it."""
        current = self.board.words[Board.base(worker) + CURRENT] if self.board is not None else 0
        if current:
            return current - 1, f"environment {current - 1}"
        first, end = self.bounds[worker]
        if end - first == 1:
            return first, f"environment {first}"
        return None, f"environments {first} to {end - 1}"

    def stop(self, patience: float = _PATIENCE) -> None:
        """Let the workers close their environments and end; kill those that have not after ``patience`` seconds."""
        if self.pid == os.getpid():
            for connection in self.connections:
                try:
                    connection.send(("stop",))
                except (Gone, OSError):
                    pass
            end = time.monotonic() + patience
            for pid, connection in zip(self.pids, self.connections, strict=True):
                if not _drained(connection, end):
                    os.kill(pid, signal.SIGKILL)
                    _drained(connection, time.monotonic() + _PATIENCE)
        for waiter in self.waiters:
            waiter.close()
        for connection in self.connections:
            connection.close()
        for one in (*self.wakes, *self.answers):
            one.close()


def _drained(connection: Connection, end: float) -> bool:
    """Read until the other end closes; False where it has not by ``end``."""
    try:
        while connection.poll(end - time.monotonic()):
            connection.recv()
    except (Gone, OSError):
        return True
    return False


def _surroundings() -> dict[str, Any]:
    return {
        "environ": dict(os.environ),
        "path": list(sys.path),
        "cwd": _folder(),
        "dtype": torch.get_default_dtype(),
        "filters": [one for one in map(_try_pickle, warnings.filters) if one is not None],
        "backends": effective_backends(),
        "registry": cloudpickle.dumps(worker_state()),
    }


def _folder() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


def _try_pickle(value: Any) -> bytes | None:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception:
        return None
