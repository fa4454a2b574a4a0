"""Pool: worker processes as their caller sees them."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, closing
from typing import Any, NamedTuple, NoReturn

from steppe.errors import StateError, WorkerError, WorkerTimeout
from steppe.workers.channel import Connection, Gone, Signal, SpinGate, Waiter
from steppe.workers.commands import ANSWERED, ARGUMENT, AT_WORK, FAILED, ORDER, ORDERED, PER_WORKER, RESULT, Words
from steppe.workers.context import gather
from steppe.workers.interrupts import uninterrupted
from steppe.workers.pickling import for_worker, named_modules, pickled
from steppe.workers.start.fork_server import Forking, fork_server
from steppe.workers.start.preload import Loaded
from steppe.workers.start.process import Process, check_method, launch

__all__ = ["AFTER_AN_ERROR", "PATIENCE", "PATIENCE_AFTER_FAILURE", "Pool", "Ticket", "interrupted", "other_process"]

#: Seconds that workers may take to end.
PATIENCE = 5.0
#: The same after a failure, when one may well hang.
PATIENCE_AFTER_FAILURE = 0.5

#: Why workers were stopped, for the errors of later uses; ``interrupted`` says the other reason.
AFTER_AN_ERROR = "stopped after an error"


class Ticket(NamedTuple):
    """What a worker was asked for and has not been heard of: a call, or an order with its number."""

    worker: int
    order: int | None


class Pool:
    """``n`` worker processes, each of which runs one function.

    ``begin`` starts them, and sends each what that function is given. Then a worker is *called*, with a message that it
    answers with another, or *ordered*, with a word in shared memory (``share``) that it answers with a word. Both give
    a ticket to wait with, and both have a short form that waits for all: ``ask`` and ``round``.

    Args:
        n: how many.
        entry: ``"module:function"``, called in each worker with a :class:`Worker` and what ``begin`` sends.
        method: ``"forkserver"``, the same as None, ``"spawn"`` or ``"fork"``.
        preload: modules that the fork server loads ahead.
        noun: what the workers work on, for errors: ``"environment"``.
        subjects: the numbers of what each worker works on; by default its own.
        grace: seconds that workers may take to finish what they are at when their caller is interrupted.

    Attributes:
        words: the shared words, None before ``share``.
        in_step: whether every call has its answer. A pool that is not (a worker ended, or did not answer an interrupted
            caller in time) would take the last answers for those of the next calls: stop it.

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
        noun: str = "task",
        subjects: Sequence[range] | None = None,
        grace: float = PATIENCE,
    ) -> None:
        self.method = check_method(method)
        self.entry, self.noun = entry, noun
        self.subjects = list(subjects) if subjects is not None else [range(w, w + 1) for w in range(n)]
        self.words: Words | None = None
        self.in_step = True
        self.grace = grace
        self.owner = os.getpid()
        self._preload = list(preload)
        self._own_modules: frozenset[str] = frozenset()
        self._processes: list[Process] = []
        self._connections: list[Connection] = []
        self._signals: list[tuple[Signal, Signal]] = []
        self._waiters: list[Waiter] = []
        self._any: Waiter | None = None
        self._order = 0
        # The caller counts: it waits for the workers, or works beside them.
        self.gate = SpinGate(n + 1)

    def __len__(self) -> int:
        return len(self.subjects)

    @property
    def pids(self) -> list[int]:
        """Process ids, by worker."""
        return [process.pid for process in self._processes]

    @property
    def is_ours(self) -> bool:
        """Whether this process started the workers. A child that was forked later has copies of what leads to them."""
        return self.owner == os.getpid()

    # -- the beginning --------------------------------------------------------------------------------------------

    def begin(self, payloads: Sequence[Any], *, num_threads: int = 1) -> None:
        """Start the workers, and send each what its function is given, by value.

        The function tells with ``say`` when it is ready.

        Args:
            payloads: one for each worker.
            num_threads: threads that torch uses in a worker.

        Raises:
            WorkerError: something cannot be pickled.
        """
        sent = [pickled(payload) for payload in payloads]
        named = named_modules(sent[0]) if self.method == "forkserver" else set()
        self._launch_all(named)
        context = gather()
        for worker, payload in enumerate(sent):
            setup = {"worker": worker, "n_workers": len(self), "entry": self.entry, "context": context}
            self.send(worker, {**setup, "num_threads": num_threads, "named": sorted(named), "payload": payload})

    def _launch_all(self, named: Collection[str]) -> None:
        """Start the workers, forked from a process that has imported the modules ``named``, where there is one."""
        server: Forking | None = None
        if self.method == "forkserver":
            server, self._own_modules = fork_server(self._preload).with_modules(named)
        n = len(self)
        try:
            for _ in range(n):
                self._launch(server)
            self._setters = [wake.setter() for wake, _ in self._signals]
            for _, answer in self._signals:
                self._waiters.append(Waiter(answer, self._connections))
        except BaseException as error:
            started = len(self._processes)
            self.stop(PATIENCE_AFTER_FAILURE)
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise OSError(
                    error.errno,
                    f"Too many open files after the start of {started} of {n} workers, each of which takes 4 "
                    "descriptors here: close other batches, take fewer processes with num_processes=, or raise the "
                    "limit, in a shell with `ulimit -n 4096`",
                ) from error
            raise

    def _launch(self, server: Forking | None) -> None:
        with ExitStack() as failed:
            ours, theirs = Connection.pair()
            failed.callback(ours.close)
            with closing(theirs):
                wake = Signal.create()
                failed.callback(wake.close)
                answer = Signal.create()
                failed.callback(answer.close)
                fds = [theirs.fileno(), *wake.fds, *answer.fds]
                self._processes.append(launch(self.method, fds, server))
            failed.pop_all()
        self._connections.append(ours)
        self._signals.append((wake, answer))

    def preload(self, loaded: Loaded) -> None:
        """Have modules imported ahead, so that workers of later pools have them."""
        if self.method == "forkserver":
            server = fork_server()
            server.preload(loaded.plugins)
            if loaded.named:
                server.branch_off(self._own_modules.union(loaded.named))

    def share(self, n_extra: int, message: Any = None, fds: Sequence[int] = ()) -> Words:
        """Share words with the workers, and bytes behind them; a message and descriptors go along.

        Args:
            n_extra: how many bytes.
            message: what the service of each worker is given with them.
            fds: descriptors for each worker.
        """
        words, fd = Words.anonymous(len(self), n_extra)
        try:
            for worker in range(len(self)):
                self.send(worker, ("share", n_extra, message), [fd, *fds])
            for worker in range(len(self)):
                self.receive(worker)
        finally:
            os.close(fd)
        self.words = words
        return words

    def hand(self, message: Any, fds: Sequence[int]) -> None:
        """Give the service of each worker, which has a method ``take``, a message and descriptors; waits for all."""
        self._ask("hand", dict.fromkeys(range(len(self)), message), None, fds)

    # -- calls ----------------------------------------------------------------------------------------------------

    def send(self, worker: int, message: Any, fds: Sequence[int] = ()) -> None:
        """Send a message as it is.

        Raises:
            WorkerError: the worker has ended.
        """
        try:
            self._connections[worker].send_bytes(for_worker(message), fds)
        except Gone:
            self.receive(worker)  # what it said before it ended, if it said anything
            raise self._ended(worker) from None

    def receive(self, worker: int) -> Any:
        """Wait for what a worker says next.

        Raises:
            WorkerError: it raised, or has ended.
        """
        try:
            (kind, value), _ = self._connections[worker].recv()
        except Gone:
            raise self._ended(worker) from None
        if kind == "failed":
            raise value.error(self.noun, worker)
        return value

    def call(self, worker: int, message: Any) -> Ticket:
        """Send a worker a message that it answers, and do not wait."""
        self.send(worker, ("call", message))
        return Ticket(worker, None)

    def ask(self, messages: dict[int, Any], timeout: float | None = None) -> dict[int, Any]:
        """Send one message to each of some workers and return the answers, by worker.

        Args:
            messages: what to send, by worker.
            timeout: seconds to wait at most.

        Raises:
            WorkerError: the first failure, once all workers have answered.
            WorkerTimeout: one did not answer in time.
            KeyboardInterrupt: once all workers have answered; ``in_step`` says whether they did within ``grace``.
        """
        return self._ask("call", messages, timeout)

    def _ask(
        self, kind: str, messages: dict[int, Any], timeout: float | None, fds: Sequence[int] = ()
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
                with uninterrupted():
                    try:
                        answers[worker] = self.receive(worker)
                    except WorkerError as error:
                        failure, ended = failure or error, ended or not error.remote_traceback
                    due.discard(worker)
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
        """Read the answers that nobody waits for any more; False where one does not come within ``grace``."""
        end = time.monotonic() + self.grace
        for worker in due:
            connection = self._connections[worker]
            if connection.broken_off or not connection.poll(end - time.monotonic()):
                return False
            with uninterrupted():
                try:
                    self.receive(worker)
                except WorkerError as error:
                    if not error.remote_traceback:
                        return False
        return True

    # -- orders ---------------------------------------------------------------------------------------------------

    def order(self, worker: int, order: int, argument: int = 0) -> Ticket:
        """Order a worker to do something, and do not wait."""
        assert self.words is not None
        words, base = self.words.words, worker * PER_WORKER
        self._order += 1
        words[base + ORDER] = order
        words[base + ARGUMENT] = argument
        words[base + ORDERED] = self._order
        self._setters[worker]()
        return Ticket(worker, self._order)

    def round(
        self,
        order: int,
        argument: int = 0,
        *,
        only: Sequence[bool] | None = None,
        timeout: float | None = None,
        meanwhile: Callable[[], int] | None = None,
    ) -> int:
        """Order all workers to do something, and wait for them.

        Args:
            order: what.
            argument: one number with it.
            only: which workers; None for all.
            timeout: seconds to wait at most.
            meanwhile: what this process does itself; called once the workers are at it.

        Returns:
            The sum of their results, that of ``meanwhile`` included.

        Raises:
            WorkerError: one raised, or ended.
            WorkerTimeout: one did not answer in time.
        """
        assert self.words is not None
        words = self.words.words
        self._order += 1
        number = self._order
        busy = []
        for w, wake in enumerate(self._setters):
            if only is not None and not only[w]:
                continue
            base = w * PER_WORKER
            words[base + ORDER] = order
            words[base + ARGUMENT] = argument
            words[base + ORDERED] = number
            wake()
            busy.append(base + ANSWERED)

        total = meanwhile() if meanwhile is not None else 0

        def ready() -> bool:
            return all(words[answered] == number for answered in busy)

        if not self.gate.spin(ready):
            end = None if timeout is None else time.monotonic() + timeout
            # The last one woken is the last to answer, mostly: one wake-up of this process is then enough.
            for answered in reversed(busy):
                waiter = self._waiters[answered // PER_WORKER]
                while words[answered] != number:
                    gone = waiter.wait(None if end is None else end - time.monotonic())
                    if words[answered] == number:
                        break
                    if gone:
                        self.unexpected(self._worker_at(gone[0]))
                    if end is not None and time.monotonic() >= end:
                        raise self._late(next(at // PER_WORKER for at in busy if words[at] != number), timeout)
        for answered in busy:
            if words[answered - ANSWERED + FAILED]:
                self.receive(answered // PER_WORKER)
            total += words[answered - ANSWERED + RESULT]
        return total

    def settle(self) -> bool:
        """Wait until the workers have done what an interrupted ``round`` has ordered.

        Returns:
            Whether all did within ``grace``, and none raised: the pool can be used on.
        """
        if self.words is None:
            return False
        words, end = self.words.words, time.monotonic() + self.grace
        for worker, (wake, waiter) in enumerate(zip(self._setters, self._waiters, strict=False)):
            ordered, answered = worker * PER_WORKER + ORDERED, worker * PER_WORKER + ANSWERED
            if words[answered] != words[ordered]:
                wake()  # the interrupt may have come before it was woken
            while words[answered] != words[ordered]:
                gone = waiter.wait(end - time.monotonic())
                if words[answered] != words[ordered] and (gone or time.monotonic() >= end):
                    return False
            if words[worker * PER_WORKER + FAILED]:
                return False
        return not any(connection.broken_off for connection in self._connections)

    # -- tickets --------------------------------------------------------------------------------------------------

    def ended(self, ticket: Ticket) -> bool:
        """Whether a worker has answered what the ticket is for, or failed in it."""
        if ticket.order is None:
            return self._connections[ticket.worker].poll(0)
        assert self.words is not None
        return bool(self.words.words[ticket.worker * PER_WORKER + ANSWERED] == ticket.order)

    def result(self, ticket: Ticket) -> Any:
        """The answer to a call, or the number that an order returned; waits for an answer, but for no order.

        Raises:
            WorkerError: the worker raised, or has ended.
        """
        if ticket.order is None:
            return self.receive(ticket.worker)
        assert self.words is not None
        base = ticket.worker * PER_WORKER
        if self.words.words[base + FAILED]:
            self.receive(ticket.worker)
        return self.words.words[base + RESULT]

    def rouse(self) -> None:
        """Wake a thread that is in ``wait_any``, though nothing has happened."""
        if self._signals:
            self._signals[0][1].setter()()

    def wait_any(self, timeout: float | None = None) -> list[int]:
        """Sleep until a worker answers, or ends.

        Args:
            timeout: seconds to wait at most.

        Returns:
            Workers that have sent a message, or ended; an order that is done is in none of them, but wakes too.
        """
        if self._any is None:
            first, *others = (answer for _, answer in self._signals)
            self._any = Waiter(first, self._connections, messages=True, others=others)
            self._waiters.append(self._any)
        return [self._worker_at(fd) for fd in self._any.wait(timeout)]

    def unexpected(self, worker: int) -> NoReturn:
        """Raise what a worker said though nothing was due from it: an error, or its end."""
        self.receive(worker)
        raise self._ended(worker)

    def _worker_at(self, fd: int) -> int:
        return next(w for w, connection in enumerate(self._connections) if connection.fileno() == fd)

    # -- what goes wrong ------------------------------------------------------------------------------------------

    def _ended(self, worker: int) -> WorkerError:
        subject, name = self._at_work(worker)
        return WorkerError(
            f"Worker {worker} (process {self.pids[worker]}) ended unexpectedly, at work on {name}: "
            "it was killed, or a library crashed.",
            worker=worker,
            env=subject,
        )

    def _late(self, worker: int, timeout: float | None) -> WorkerTimeout:
        subject, name = self._at_work(worker)
        return WorkerTimeout(
            f"Worker {worker}, at work on {name}, did not answer within {timeout} s.", worker=worker, env=subject
        )

    def _at_work(self, worker: int) -> tuple[int | None, str]:
        """What a worker is at, None between orders, and how to call it."""
        current = self.words.words[worker * PER_WORKER + AT_WORK] if self.words is not None else 0
        if current:
            return current - 1, f"{self.noun} {current - 1}"
        own = self.subjects[worker]
        if len(own) == 1:
            return own[0], f"{self.noun} {own[0]}"
        return None, f"{self.noun}s {own[0]} to {own[-1]}"

    def kill(self) -> None:
        """End the processes at once; a thread that waits for one is raised a WorkerError."""
        if self.is_ours:
            for process in self._processes:
                process.kill()

    # -- the end --------------------------------------------------------------------------------------------------

    def stop(self, patience: float = PATIENCE) -> None:
        """Let the workers end, and kill those that have not after ``patience`` seconds."""
        if self.is_ours:
            for connection in self._connections:
                try:
                    connection.send(("stop",))
                except (Gone, OSError):
                    pass
            end = time.monotonic() + patience
            for process, connection in zip(self._processes, self._connections, strict=False):
                if not _drained(connection, end):
                    process.kill()
                    _drained(connection, time.monotonic() + PATIENCE)
                process.reap()
        opened: list[Any] = [*self._waiters, *self._connections]
        for pair in self._signals:
            opened += pair
        for one in opened:
            one.close()
        self._waiters, self._connections, self._signals, self._any = [], [], [], None


def interrupted(noun: str, grace: float) -> str:
    """Return why workers were stopped that did not finish their work after Ctrl-C.

    Args:
        noun: what they work on, ``"environment"``.
        grace: how many seconds they had.
    """
    return f"interrupted, and its {noun}s did not finish what they were at within {grace:g} s"


def other_process(name: str, owner: int) -> StateError:
    """Return the error for using an object with workers, of a class of this name, in a process forked from its own."""
    return StateError(
        f"This {name} was started in process {owner}, and this is process {os.getpid()}, forked from "
        "it: two processes cannot lead the same workers. Make it in this process (in the worker_init_fn of a "
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
