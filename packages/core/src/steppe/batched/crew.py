"""Crew: the worker processes of one batch, as their caller sees them."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, NoReturn

from steppe.batched.board import ACK, COMMAND, CURRENT, FAILED, N_RESET, OP, PARTIAL, Board
from steppe.batched.channel import Connection, Gone, Signal, SpinGate, Waiter
from steppe.batched.launch import Process, launch
from steppe.errors import StateError, WorkerError, WorkerTimeout

__all__ = ["PATIENCE", "PATIENCE_AFTER_FAILURE", "Crew", "other_process"]

# How long a worker may take to close its environments, and after a failure, when it may well hang.
PATIENCE = 5.0
PATIENCE_AFTER_FAILURE = 0.5


class Crew:
    """The worker processes of one batch.

    Args:
        bounds: first row and end of the rows of each worker.
        method: ``"forkserver"``, ``"spawn"`` or ``"fork"``.

    Attributes:
        board: the words that commands are written to; set by the batch once its rows are known.
        in_step: whether every question has its answer. A crew that is not (a worker ended, or Ctrl-C came between)
            would answer the next question with the last one's answers, and is of no more use.
    """

    def __init__(self, bounds: list[tuple[int, int]], method: str) -> None:
        self.bounds = bounds
        self.processes: list[Process] = []
        self.connections: list[Connection] = []
        self.signals: list[tuple[Signal, Signal]] = []
        self.waiters: list[Waiter] = []
        self.board: Any = None
        self.serial = 0
        self.in_step = True
        self.owner = os.getpid()
        try:
            for _ in bounds:
                self._hire(method)
            self.setters = [wake.setter() for wake, _ in self.signals]
            for _, answer in self.signals:
                self.waiters.append(Waiter(answer, self.connections))
        except BaseException as error:
            hired = len(self.processes)
            self.stop(PATIENCE_AFTER_FAILURE)
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise OSError(
                    error.errno,
                    f"Too many open files after the start of {hired} of {len(bounds)} workers, each of which takes 4 "
                    "descriptors here: close other batches, take fewer processes with num_processes=, or raise the "
                    "limit, in a shell with `ulimit -n 4096`",
                ) from error
            raise
        # The caller counts: it waits for the workers, or steps environments of its own beside them.
        self.gate = SpinGate(len(bounds) + 1)

    def _hire(self, method: str) -> None:
        with ExitStack() as failed:
            ours, theirs = Connection.pair()
            failed.callback(ours.close)
            with closing(theirs):
                wake = Signal.create()
                failed.callback(wake.close)
                answer = Signal.create()
                failed.callback(answer.close)
                self.processes.append(launch(method, [theirs.fileno(), *wake.fds, *answer.fds]))
            failed.pop_all()
        self.connections.append(ours)
        self.signals.append((wake, answer))

    @property
    def is_ours(self) -> bool:
        """Whether this process started the workers. A child that was forked later has copies of what leads to them."""
        return self.owner == os.getpid()

    @property
    def pids(self) -> list[int]:
        """Process ids, by worker."""
        return [process.pid for process in self.processes]

    def send(self, worker: int, message: Any, fds: list[int] | None = None) -> None:
        """Send a message to a worker."""
        try:
            self.connections[worker].send(message, fds or [])
        except Gone:
            self.expect(worker, "")  # what it said before it ended, if it said anything
            raise self.ended(worker) from None

    def ask(self, messages: dict[int, Any], timeout: float | None = None) -> dict[int, Any]:
        """Send one message to each of some workers and return the answers, by worker.

        Args:
            messages: what to send, by worker.
            timeout: seconds to wait at most.

        Raises:
            WorkerError: the first failure, once all workers have answered.
            WorkerTimeout: one did not answer in time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self.in_step = False
        for worker, message in messages.items():
            self.send(worker, message)
        answers: dict[int, Any] = {}
        failure: WorkerError | None = None
        ended = False
        for worker in messages:
            if end is not None and not self.connections[worker].poll(end - time.monotonic()):
                raise self.late(worker, timeout)
            try:
                answers[worker] = self.expect(worker, "done")[1]
            except WorkerError as error:
                failure, ended = failure or error, ended or not error.remote_traceback
        self.in_step = not ended
        if failure is not None:
            raise failure
        return answers

    def expect(self, worker: int, kind: str) -> Any:
        """Wait for the next message of a worker."""
        try:
            message, _ = self.connections[worker].recv()
        except Gone:
            raise self.ended(worker) from None
        if message[0] == "failed":
            self.fail(worker, message)
        return message

    def fail(self, worker: int, message: Any) -> NoReturn:
        """Raise what a worker reported."""
        _, row, doing, (summary, text) = message
        where = f"environment {row}" if row is not None else "its environments"
        raise WorkerError(
            f"Worker {worker} raised in {doing} of {where}: {summary}\n\n{text}",
            worker=worker,
            env=row,
            remote_traceback=text,
        )

    def round(
        self, op: int, active: list[bool] | None, timeout: float | None, meanwhile: Callable[[], int] | None = None
    ) -> int:
        """Have the workers step or reset.

        Args:
            op: one of the operations of :mod:`steppe.batched.worker`.
            active: which workers have rows to do; None for all, all rows.
            timeout: seconds to wait at most.
            meanwhile: what this process does itself; called once the workers are at it.

        Returns:
            How many rows were reset, those of ``meanwhile`` included.
        """
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

        total = meanwhile() if meanwhile is not None else 0

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
                        raise self.late(next(ack // 16 for ack in busy if words[ack] != serial), timeout)
        for ack in busy:
            if words[ack - ACK + FAILED]:
                self.expect(ack // 16, "failed")
            total += words[ack - ACK + N_RESET]
        return total

    def order(self, worker: int, op: int) -> int:
        """Have one worker step or reset all its rows, and do not wait; returns what :meth:`answered` asks for."""
        words, base = self.board.words, Board.base(worker)
        self.serial += 1
        words[base + OP] = op
        words[base + PARTIAL] = False
        words[base + COMMAND] = self.serial
        self.setters[worker]()
        return self.serial

    def answered(self, worker: int, serial: int) -> bool:
        """Whether a worker has done what it was ordered to, or failed in it."""
        return bool(self.board.words[Board.base(worker) + ACK] == serial)

    def check(self, worker: int) -> None:
        """Raise what the worker reported with its last answer, if it reported anything."""
        if self.board.words[Board.base(worker) + FAILED]:
            self.expect(worker, "failed")

    def waiter_for_any(self, *, messages: bool) -> Waiter:
        """Make what waits for an answer, with ``messages`` also for a message, of any worker; ``stop`` closes it."""
        first, *others = (answer for _, answer in self.signals)
        waiter = Waiter(first, self.connections, messages=messages, others=others)
        self.waiters.append(waiter)
        return waiter

    def worker_at(self, fd: int) -> int:
        """Which worker is at the other end of a connection."""
        return next(w for w, connection in enumerate(self.connections) if connection.fileno() == fd)

    def died(self, fd: int) -> NoReturn:
        """Raise the error of the worker behind a closed connection, or what it said last."""
        worker = self.worker_at(fd)
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

    def late(self, worker: int, timeout: float | None) -> WorkerTimeout:
        """The error of a worker that has not answered."""
        row, name = self.at_work(worker)
        return WorkerTimeout(
            f"Worker {worker}, at work on {name}, did not answer within {timeout} s.", worker=worker, env=row
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

    def stop(self, patience: float = PATIENCE) -> None:
        """Let the workers close their environments and end; kill those that have not after ``patience`` seconds."""
        if self.is_ours:
            for connection in self.connections:
                try:
                    connection.send(("stop",))
                except (Gone, OSError):
                    pass
            end = time.monotonic() + patience
            for process, connection in zip(self.processes, self.connections, strict=False):
                if not _drained(connection, end):
                    process.kill()
                    _drained(connection, time.monotonic() + PATIENCE)
                process.reap()
        for one in (*self.waiters, *self.connections, *(signal for pair in self.signals for signal in pair)):
            one.close()
        self.waiters, self.connections, self.signals = [], [], []


def other_process(batch: object, owner: int) -> StateError:
    """The error for a batch that is used in a process which was forked from its own."""
    return StateError(
        f"This {type(batch).__name__} was started in process {owner}, and this is process {os.getpid()}, forked from "
        "it: two processes cannot lead the same workers. Make the batch in this process (in the worker_init_fn of a "
        "DataLoader, or in the function that the child runs)."
    )


def _drained(connection: Connection, end: float) -> bool:
    """Read until the other end closes; False where it has not by ``end``."""
    try:
        while connection.poll(end - time.monotonic()):
            connection.recv()
    except (Gone, OSError):
        return True
    return False
