"""Pool: worker processes, started, called and stopped by one caller."""

from __future__ import annotations

import errno
import os
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, NoReturn

from steppe.errors import StateError, WorkerError, WorkerTimeout
from steppe.workers.channel import Connection, Gone, Signal, SpinGate, Waiter
from steppe.workers.context import gather_context
from steppe.workers.control_block import (
    ANSWERED,
    ARGUMENT,
    AT_WORK,
    FAILED,
    ORDER,
    ORDERED,
    PER_WORKER,
    RESULT,
    ControlBlock,
)
from steppe.workers.interrupts import uninterrupted
from steppe.workers.pickling import for_worker, named_modules, pickled
from steppe.workers.start.fork_server import fork_server
from steppe.workers.start.process import Process, check_method, launch

__all__ = [
    "AFTER_AN_ERROR",
    "SHUTDOWN_TIMEOUT",
    "SHUTDOWN_TIMEOUT_AFTER_FAILURE",
    "Pool",
    "interrupted",
    "other_process",
]

#: Seconds that workers may take to end.
SHUTDOWN_TIMEOUT = 5.0
#: Seconds that workers may take to end after a failure, when one of them may hang.
SHUTDOWN_TIMEOUT_AFTER_FAILURE = 0.5

#: Why workers were stopped, for the errors of later calls; :func:`interrupted` returns the other reason.
AFTER_AN_ERROR = "stopped after an error"


class Pool:
    """``n`` worker processes, each of which runs one function.

    ``begin`` starts the workers and sends each the argument of that function. Afterwards there are two ways to give a
    worker something to do. A *call* sends a message, and the worker answers with a message: any data, tens of
    microseconds. An *order* sets flags in shared memory (after ``share``), and the worker answers with a number: no
    pickling, once per step of a batch. ``ask`` and ``round`` call or order several workers and wait for all; ``call``
    and ``order`` do not wait: ``wait_any`` does, and ``has_message`` and ``has_finished`` say which worker is done.

    Args:
        n: number of workers.
        entry: ``"module:function"``, called in each worker with a :class:`Worker` and its payload.
        method: start method: ``"forkserver"`` (the default), ``"spawn"`` or ``"fork"``.
        preload: modules that the fork server imports before it forks.
        label: name of the items that workers work on, for errors: ``"environment"``.
        indices: the indices of the items of each worker; by default the worker's own index.
        grace: seconds that workers may take to finish their work after Ctrl-C.

    Attributes:
        control: the flags that are shared with the workers; None before ``share``.
        in_step: whether every call was answered. If not (a worker ended, or did not answer in time after Ctrl-C), the
            next calls would read the old answers: stop the pool.

    Raises:
        NotSupported: this system has no worker processes.
    """

    def __init__(
        self,
        n: int,
        entry: str,
        *,
        method: str | None = None,
        preload: Sequence[str] = (),
        label: str = "task",
        indices: Sequence[range] | None = None,
        grace: float = SHUTDOWN_TIMEOUT,
    ) -> None:
        self.method = check_method(method)
        self.entry, self.label = entry, label
        self.indices = list(indices) if indices is not None else [range(w, w + 1) for w in range(n)]
        self.control: ControlBlock | None = None
        self.in_step = True
        self.grace = grace
        self.owner = os.getpid()
        self._preload = list(preload)
        self._processes: list[Process] = []
        self._connections: list[Connection] = []
        self._signals: list[tuple[Signal, Signal]] = []
        self._waiters: list[Waiter] = []
        self._any: Waiter | None = None
        self._order = 0
        # Counts the caller too: it waits for the workers, or works at the same time.
        self.gate = SpinGate(n + 1)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def pids(self) -> list[int]:
        """Process ids, by worker."""
        return [process.pid for process in self._processes]

    @property
    def is_ours(self) -> bool:
        """Whether this process started the workers: a child that was forked later must not use them."""
        return self.owner == os.getpid()

    # -- start ----------------------------------------------------------------------------------------------------

    def begin(self, payloads: Sequence[object], *, num_threads: int = 1) -> None:
        """Start the workers, and send each its payload, pickled by value.

        The function of each worker calls ``worker.say`` when it is ready: ``receive`` returns what it said.

        Args:
            payloads: the second argument of the function, one for each worker.
            num_threads: number of threads that torch uses in a worker.

        Raises:
            WorkerError: a payload cannot be pickled.
        """
        sent = [pickled(payload) for payload in payloads]
        self._launch_all(sent[0])
        context = gather_context()
        for worker, payload in enumerate(sent):
            setup = {"worker": worker, "n_workers": len(self), "entry": self.entry, "context": context}
            self.send(worker, {**setup, "num_threads": num_threads, "payload": payload})

    def _launch_all(self, payload: bytes) -> None:
        """Start the workers; with a fork server, from a process that has imported the modules that they need."""
        fork: Callable[[list[int]], int] | None = None
        n = len(self)
        if self.method == "forkserver":
            server = fork_server(self._preload)
            # One import instead of one in each worker; a single worker imports them as fast.
            key = server.module_server(named_modules(payload), wait=n > 1)
            fork = partial(server.fork, key=key)
        try:
            for _ in range(n):
                self._launch(fork)
            self._setters = [wake.set for wake, _ in self._signals]
            for _, answer in self._signals:
                self._waiters.append(Waiter([answer], self._connections))
        except BaseException as error:
            started = len(self._processes)
            self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE)
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise OSError(
                    error.errno,
                    f"Too many open files after the start of {started} of {n} workers, each of which takes 4 "
                    "descriptors here: close other batches, take fewer processes with num_processes=, or raise the "
                    "limit, in a shell with `ulimit -n 4096`",
                ) from error
            raise

    def _launch(self, fork: Callable[[list[int]], int] | None) -> None:
        with ExitStack() as failed:
            ours, theirs = Connection.pair()
            failed.callback(ours.close)
            with closing(theirs):
                wake = Signal.create()
                failed.callback(wake.close)
                answer = Signal.create()
                failed.callback(answer.close)
                fds = [theirs.fileno(), *wake.fds, *answer.fds]
                self._processes.append(launch(self.method, fds, fork))
            failed.pop_all()
        self._connections.append(ours)
        self._signals.append((wake, answer))

    def preload(self, modules: Sequence[str]) -> None:
        """Have the fork server import modules, so that workers of later pools start with them."""
        if self.method == "forkserver":
            fork_server(modules)

    def share(self, n_extra: int, message: object = None, fds: Sequence[int] = ()) -> ControlBlock:
        """Share flags with the workers, and memory behind them; a message and descriptors are sent along.

        Args:
            n_extra: bytes of memory behind the flags.
            message: passed to ``Service.share`` in each worker.
            fds: descriptors, duplicated into each worker.
        """
        control = ControlBlock(len(self), n_extra)
        try:
            self._ask("share", dict.fromkeys(range(len(self)), (n_extra, message)), None, [control.fd, *fds])
        finally:
            os.close(control.fd)
        self.control = control
        return control

    def hand(self, message: object, fds: Sequence[int]) -> None:
        """Send a message and descriptors to the ``take`` method of each worker's service; waits for all workers."""
        self._ask("hand", dict.fromkeys(range(len(self)), message), None, fds)

    # -- calls ----------------------------------------------------------------------------------------------------

    def send(self, worker: int, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message to a worker.

        Raises:
            WorkerError: the worker has ended.
        """
        try:
            self._connections[worker].send_bytes(for_worker(message), fds)
        except Gone:
            self.receive(worker)  # raises the error that the worker sent before it ended, if it sent one
            raise self._ended(worker) from None

    def receive(self, worker: int) -> Any:
        """Wait for the next message of a worker.

        Raises:
            WorkerError: the worker raised, or has ended.
        """
        return self._content(worker, self._read(worker))

    def _read(self, worker: int) -> bytearray:
        try:
            return self._connections[worker].recv_bytes()[0]
        except Gone:
            raise self._ended(worker) from None

    def _content(self, worker: int, message: bytearray) -> Any:
        kind, value = pickle.loads(message)
        if kind == "failed":
            raise value.error(self.label, worker)
        return value

    def call(self, worker: int, message: object) -> None:
        """Send a worker a message, without waiting for the answer, which ``receive`` returns."""
        self.send(worker, ("call", message))

    def ask(self, messages: Mapping[int, object], timeout: float | None = None) -> dict[int, Any]:
        """Send a message to each of some workers, and return the answers, by worker.

        Args:
            messages: messages by worker.
            timeout: seconds to wait at most.

        Raises:
            WorkerError: the first failure, once all workers have answered.
            WorkerTimeout: a worker did not answer in time.
            KeyboardInterrupt: raised once all workers have answered; ``in_step`` is False if they did not within
                ``grace``.
        """
        return self._ask("call", messages, timeout)

    def _ask(
        self, kind: str, messages: Mapping[int, object], timeout: float | None, fds: Sequence[int] = ()
    ) -> dict[int, Any]:
        end = None if timeout is None else time.monotonic() + timeout
        self.in_step = False
        due: set[int] = set()
        answers: dict[int, Any] = {}
        failure: WorkerError | None = None
        ended = False
        try:
            for worker, message in messages.items():
                with uninterrupted():
                    due.add(worker)
                    self.send(worker, (kind, message), fds)
            for worker in messages:
                if not self._connections[worker].poll(None if end is None else end - time.monotonic()):
                    raise self._late(worker, timeout)
                try:
                    with uninterrupted():
                        answer = self._read(worker)
                        due.discard(worker)
                    answers[worker] = self._content(worker, answer)
                except WorkerError as error:
                    failure, ended = failure or error, ended or not error.remote_traceback
        except WorkerError:
            raise
        except BaseException:
            self.in_step = not ended and self._discard(due)
            raise
        self.in_step = not ended
        if failure is not None:
            raise failure
        return answers

    def _discard(self, due: set[int]) -> bool:
        """Read and drop the answers of workers; False if one does not answer within ``grace``."""
        end = time.monotonic() + self.grace
        for worker in due:
            connection = self._connections[worker]
            if connection.broken_off or not connection.poll(end - time.monotonic()):
                return False
            with uninterrupted():
                try:
                    self._read(worker)
                except WorkerError:  # it has ended
                    return False
        return True

    # -- orders ---------------------------------------------------------------------------------------------------

    def order(self, worker: int, order: int, argument: int = 0) -> None:
        """Give a worker an order, without waiting for its result, which ``order_result`` returns."""
        assert self.control is not None
        flags, base = self.control.flags, worker * PER_WORKER
        self._order += 1
        flags[base + ORDER] = order
        flags[base + ARGUMENT] = argument
        flags[base + ORDERED] = self._order
        self._setters[worker]()

    def round(
        self,
        order: int,
        argument: int = 0,
        *,
        only: Sequence[bool] | None = None,
        timeout: float | None = None,
        overlap: Callable[[], int] | None = None,
    ) -> int:
        """Give all workers the same order, and wait for all.

        Args:
            order: the order.
            argument: its argument.
            only: which workers; None for all.
            timeout: seconds to wait at most.
            overlap: called in this process while the workers are at work.

        Returns:
            The sum of the workers' results and of the result of ``overlap``.

        Raises:
            WorkerError: a worker raised, or ended.
            WorkerTimeout: a worker did not answer in time.
        """
        assert self.control is not None
        flags = self.control.flags
        self._order += 1
        number = self._order
        busy = []
        for w, wake in enumerate(self._setters):
            if only is not None and not only[w]:
                continue
            base = w * PER_WORKER
            flags[base + ORDER] = order
            flags[base + ARGUMENT] = argument
            flags[base + ORDERED] = number
            wake()
            busy.append(base + ANSWERED)

        total = overlap() if overlap is not None else 0

        def ready() -> bool:
            return all(flags[answered] == number for answered in busy)

        if not self.gate.spin(ready):
            end = None if timeout is None else time.monotonic() + timeout
            # The last worker that was woken mostly answers last: waiting for it first, this process sleeps only once.
            for answered in reversed(busy):
                waiter = self._waiters[answered // PER_WORKER]
                while flags[answered] != number:
                    gone = waiter.wait(None if end is None else end - time.monotonic())
                    if flags[answered] == number:
                        break
                    if gone:
                        self.unexpected(self._worker_at(gone[0]))
                    if end is not None and time.monotonic() >= end:
                        raise self._late(next(at // PER_WORKER for at in busy if flags[at] != number), timeout)
        for answered in busy:
            if flags[answered - ANSWERED + FAILED]:
                self.receive(answered // PER_WORKER)
            total += flags[answered - ANSWERED + RESULT]
        return total

    def settle(self) -> bool:
        """Wait until the workers have finished the order of an interrupted ``round``.

        Returns:
            Whether all finished within ``grace`` and none raised, so that the pool can be used again.
        """
        if self.control is None:
            return False
        flags, end = self.control.flags, time.monotonic() + self.grace
        for worker, (wake, waiter) in enumerate(zip(self._setters, self._waiters, strict=False)):
            ordered, answered = worker * PER_WORKER + ORDERED, worker * PER_WORKER + ANSWERED
            if flags[answered] != flags[ordered]:
                wake()  # the interrupt may have come before `round` woke it
            while flags[answered] != flags[ordered]:
                gone = waiter.wait(end - time.monotonic())
                if flags[answered] != flags[ordered] and (gone or time.monotonic() >= end):
                    return False
            if flags[worker * PER_WORKER + FAILED]:
                return False
        return not any(connection.broken_off for connection in self._connections)

    # -- single workers -------------------------------------------------------------------------------------------

    def has_message(self, worker: int) -> bool:
        """Whether a worker has sent a message that was not received yet, or has ended."""
        return self._connections[worker].poll(0)

    def has_finished(self, worker: int) -> bool:
        """Whether a worker has carried out its last order, or failed in it."""
        assert self.control is not None
        flags, base = self.control.flags, worker * PER_WORKER
        return flags[base + ANSWERED] == flags[base + ORDERED]

    def order_result(self, worker: int) -> int:
        """Return the result of the last order of a worker that has finished it.

        Raises:
            WorkerError: the worker raised.
        """
        assert self.control is not None
        base = worker * PER_WORKER
        if self.control.flags[base + FAILED]:
            self.receive(worker)
        return self.control.flags[base + RESULT]

    def rouse(self) -> None:
        """Wake a thread that is in ``wait_any``."""
        if self._signals:
            self._signals[0][1].set()

    def wait_any(self, timeout: float | None = None) -> list[int]:
        """Sleep until a worker answers or ends.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Workers that have sent a message, or ended. Workers that finished an order end the wait too, but are not
            listed here.
        """
        if self._any is None:
            self._any = Waiter([answer for _, answer in self._signals], self._connections, messages=True)
            self._waiters.append(self._any)
        return [self._worker_at(fd) for fd in self._any.wait(timeout)]

    def unexpected(self, worker: int) -> NoReturn:
        """Raise the error of a worker that has sent a message although no answer was due, or has ended."""
        self.receive(worker)
        raise self._ended(worker)

    def _worker_at(self, fd: int) -> int:
        return next(w for w, connection in enumerate(self._connections) if connection.fileno() == fd)

    # -- failures -------------------------------------------------------------------------------------------------

    def _ended(self, worker: int) -> WorkerError:
        index, name = self._at_work(worker)
        return WorkerError(
            f"Worker {worker} (process {self.pids[worker]}) ended unexpectedly, at work on {name}: "
            "it was killed, or a library crashed.",
            worker=worker,
            env=index,
        )

    def _late(self, worker: int, timeout: float | None) -> WorkerTimeout:
        index, name = self._at_work(worker)
        return WorkerTimeout(
            f"Worker {worker}, at work on {name}, did not answer within {timeout} s.", worker=worker, env=index
        )

    def _at_work(self, worker: int) -> tuple[int | None, str]:
        """The index of the item that a worker works on, None if unknown, and its name for errors."""
        current = self.control.flags[worker * PER_WORKER + AT_WORK] if self.control is not None else 0
        if current:
            return current - 1, f"{self.label} {current - 1}"
        indices = self.indices[worker]
        if len(indices) == 1:
            return indices[0], f"{self.label} {indices[0]}"
        return None, f"{self.label}s {indices[0]} to {indices[-1]}"

    def kill(self) -> None:
        """Kill the processes. A thread that waits for one of them gets a WorkerError."""
        if self.is_ours:
            for process in self._processes:
                process.kill()

    # -- end ------------------------------------------------------------------------------------------------------

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        """Ask the workers to end, and kill those that have not ended after ``timeout`` seconds."""
        if self.is_ours:
            for connection in self._connections:
                with suppress(Gone, OSError):
                    connection.send(("stop", None))
            end = time.monotonic() + timeout
            for process, connection in zip(self._processes, self._connections, strict=False):
                if not _drained(connection, end):
                    process.kill()
                    _drained(connection, time.monotonic() + SHUTDOWN_TIMEOUT)
                process.reap()
        opened: list[Waiter | Connection | Signal] = [*self._waiters, *self._connections]
        for pair in self._signals:
            opened += pair
        for handle in opened:
            handle.close()
        self._waiters, self._connections, self._signals, self._any = [], [], [], None


def interrupted(label: str, grace: float) -> str:
    """Return why workers were stopped that did not finish their work after Ctrl-C.

    Args:
        label: name of the items that they work on, ``"environment"``.
        grace: how many seconds they had.
    """
    return f"interrupted, and its {label}s did not finish what they were at within {grace:g} s"


def other_process(name: str, owner: int) -> StateError:
    """Return the error for using workers in a process that was forked from the one that started them.

    Args:
        name: the class of the object with the workers.
        owner: the process that started them.
    """
    return StateError(
        f"This {name} was started in process {owner}, and this is process {os.getpid()}, forked from "
        "it: two processes cannot lead the same workers. Make it in this process (in the worker_init_fn of a "
        "DataLoader, or in the function that the child runs)."
    )


def _drained(connection: Connection, end: float) -> bool:
    """Read until the other end closes; False if it has not closed by ``end``."""
    try:
        while connection.poll(end - time.monotonic()):
            connection.recv()
    except (Gone, OSError):
        return True
    return False
