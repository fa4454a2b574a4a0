"""WorkerGroup: the caller's side of the workers of a collector."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from tensordict import TensorDictBase

from steppe.collectors.batch_memory import BatchMemory
from steppe.collectors.shared_weights import SharedWeights
from steppe.collectors.weights import SourcePolicy
from steppe.collectors.worker_messages import ENTRY, HAS_WEIGHTS, PER_WORKER, STOP, Report, WorkerTask
from steppe.errors import ClosedError, StateError, WorkerError, WorkerTimeout
from steppe.workers import (
    AFTER_AN_ERROR,
    SHUTDOWN_TIMEOUT,
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    Pool,
    interrupted,
    other_process,
    uninterrupted,
)

__all__ = ["WorkerGroup"]

_PRELOAD = ["steppe.collectors.serving"]

#: Receives a message of a worker that runs a call; returns whether it is the last one.
Receive: TypeAlias = Callable[[int, Any], bool]

#: Seconds between two checks whether a worker has read its weights.
_LOOK = 0.0005


class WorkerGroup:
    """Worker processes with a collector each.

    They start in two phases, because the layout of a batch is known only when the policy has acted: after the first
    step, all workers get one shared memory, in which each has a row. Data without a fixed layout comes as messages.

    Args:
        name: of the collector, for errors.
        tasks: the arguments of each worker's collector.
        source: the caller's policy, of which each worker has a copy; None if workers make it, or take random actions.
        settings: the arguments of the collector: how workers start, how long they may take, and whether the caller
            keeps batches.

    Attributes:
        n: the number of workers.
        pool: their processes.
        reports: the first message of each worker.
        weights: the weights in shared memory, which the workers read.

    Raises:
        WorkerError: a worker raised while it began, or ended.
        WorkerTimeout: one was not ready in time.
    """

    def __init__(
        self, name: str, tasks: list[WorkerTask], source: SourcePolicy | None, settings: Mapping[str, Any]
    ) -> None:
        self._name, self.n = name, len(tasks)
        self._timeout, self._one_block = settings["batch_timeout"], settings["return_same_td"]
        self._stopped: str | None = None
        self._memory: BatchMemory | None = None
        #: The workers that run a call, and what receives their messages.
        self._calls: dict[int, Receive] = {}
        #: The batches that were not taken yet, None for those in memory, and their steps.
        self._ready: dict[int, tuple[TensorDictBase | None, int]] = {}
        self.prepared = False
        self.pool = Pool(self.n, ENTRY, method=settings["start_method"], preload=_PRELOAD, label="collector")
        self._finalizer = weakref.finalize(self, self.pool.stop)
        try:
            self.pool.begin(tasks, num_threads=settings["num_sub_threads"])
            self.reports = self._reported(settings["start_timeout"])
            self.pool.preload(self.reports[0].modules)
            fields = self.reports[0].fields
            self.weights = SharedWeights(fields if source is None else source.shared_fields(fields))
            if self.reports[0].weights is not None:
                self.weights.fill(self.reports[0].weights)
            elif source is not None and self.weights.fields:
                self.weights.fill(source.weights(self.weights.fields, {}))
            message = (self.n, self.weights.fields)
            control = self.pool.share(8 * PER_WORKER * self.n, message, [self.weights.fd])
            self._flags = control.extra.cast("q")
        except BaseException:
            self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE, AFTER_AN_ERROR)
            raise

    def _reported(self, timeout: float | None) -> list[Report]:
        """Wait for the first message of each worker."""
        reports: dict[int, Report] = {}

        def receive(worker: int, report: Report) -> bool:
            reports[worker] = report
            return True

        self._calls = dict.fromkeys(range(self.n), receive)
        late = (
            "Worker {} has not made its environment and policy within start_timeout={:g} s. Give it longer, or "
            "start_timeout=None for no limit, if it is not stuck."
        )
        self._hear_until(lambda: min(self._calls, default=None), timeout, late)
        return [reports[worker] for worker in range(self.n)]

    # -- calls ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ClosedError if the workers were stopped, or StateError if they belong to another process."""
        if self._stopped is not None:
            raise ClosedError(f"This {self._name} was {self._stopped}: make a new one.")
        if not self.pool.is_ours:
            raise other_process(self._name, self.pool.owner)

    def ask(self, messages: dict[int, Any]) -> dict[int, Any]:
        """Call some workers and return their answers, after the batches that they are collecting.

        Raises:
            ClosedError: the workers were stopped.
            StateError: a request is running.
            WorkerError: a worker raised, and all can be used on; or a worker ended, and all are stopped.
        """
        self.check()
        self._check_idle()
        self.wait(self._collecting & messages.keys())
        try:
            return self.pool.ask(messages)
        except BaseException as error:
            self.stop_after(error, unless=self.pool.in_step)
            raise

    def _check_idle(self) -> None:
        if self.requested:
            raise StateError("A job is running: get() its result, or job.cancel() it.")

    def hand(self, message: Any, fds: list[int]) -> None:
        """Give all workers descriptors of shared memory, with a message that says what it holds."""
        try:
            self.pool.hand(message, fds)
        except BaseException as error:
            self.stop_after(error, unless=self.pool.in_step and not isinstance(error, Exception))
            raise

    def stop_after(self, error: BaseException, *, unless: bool = False) -> None:
        """Stop the workers after an error or an interrupt, which the caller is about to raise.

        Args:
            error: the error.
            unless: the workers can be used on.
        """
        if not unless:
            why = AFTER_AN_ERROR if isinstance(error, Exception) else interrupted("worker", self.pool.grace)
            self.stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE, why)

    def ask_all(self, *message: Any) -> list[Any]:
        """Call all workers with the same message; return their answers in order."""
        answers = self.ask(dict.fromkeys(range(self.n), message))
        return [answers[worker] for worker in range(self.n)]

    def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of the collector of each worker; return the results in order."""
        return self.ask_all("collector", method, args, kwargs)

    def _prepare(self) -> None:
        """Let all workers take the first step of the policy, and give them shared memory for their batches."""
        try:
            specs = self.ask_all("prepare")
            if specs[0] is not None and all(spec == specs[0] for spec in specs):
                self._memory = BatchMemory(specs[0], self.n, one_block=self._one_block)
                storage = self._memory.storage
                self.hand(("batches", storage.spec, storage.rows), [storage.fd])
            self.prepared = True
        except Exception as error:
            self.stop_after(error)
            raise

    def start(self, messages: Mapping[int, Any], receive: Receive) -> None:
        """Start calls in workers, after the batches that they are collecting.

        Args:
            messages: the calls by worker.
            receive: gets each message of these workers with the number of the worker, and returns whether it is the
                last one of the call. Ctrl-C cannot interrupt it.
        """
        self.wait(self._collecting & messages.keys())
        for worker, message in messages.items():
            self._start(worker, message, receive)

    def _start(self, worker: int, message: Any, receive: Receive) -> None:
        with uninterrupted():
            self._flags[worker * PER_WORKER + STOP] = self._flags[worker * PER_WORKER + HAS_WEIGHTS] = 0
            self.pool.call(worker, message)
            self._calls[worker] = receive

    @property
    def requested(self) -> set[int]:
        """The workers that run calls of others than this group."""
        # Of a copy: this thread may write weights while another one receives messages.
        return {worker for worker, receive in self._calls.copy().items() if receive != self._finished}

    @property
    def _collecting(self) -> set[int]:
        """The workers that collect a batch."""
        return self._calls.keys() - self.requested

    def hear(self, timeout: float | None) -> None:
        """Receive the messages of workers that run calls; wait for one if none has come.

        Args:
            timeout: seconds to wait at most; None: no limit.

        Raises:
            WorkerError: a worker raised, or ended; all are stopped then.
        """
        try:
            if not self._look() and self._calls and timeout != 0.0:
                for worker in self.pool.wait_any(timeout):
                    if worker not in self._calls:
                        self.pool.unexpected(worker)
                self._look()
        except WorkerError as error:
            self.stop_after(error)
            raise

    def _look(self) -> bool:
        """Receive the messages that have come; return whether there were any."""
        received = False
        for worker in sorted(self._calls):
            while worker in self._calls and self.pool.has_message(worker):
                with uninterrupted():
                    if self._calls[worker](worker, self.pool.receive(worker)):
                        del self._calls[worker]
                received = True
        return received

    def _hear_until(self, late: Callable[[], int | None], timeout: float | None, problem: str) -> None:
        """Receive messages until no worker is late.

        Args:
            late: returns a worker that others wait for, or None.
            timeout: seconds to wait at most; None: no limit.
            problem: the error after that time, with places for the worker and the time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self.hear(0.0)
        while (worker := late()) is not None:
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0.0:
                error = WorkerTimeout(problem.format(worker, timeout), worker=worker)
                self.stop_after(error)
                raise error
            self.hear(remaining)

    def interrupt(self) -> None:
        """End the calls of workers at their next step; each still sends its last message."""
        for worker in self._calls:
            self._flags[worker * PER_WORKER + STOP] = 1

    # -- batches --------------------------------------------------------------------------------------------------

    @property
    def at_work(self) -> set[int]:
        """The workers that collect a batch, or whose batch was not taken yet."""
        return self._collecting | self._ready.keys()

    def begin(self, workers: Iterable[int], *, random: bool = False) -> None:
        """Let workers begin a batch, unless they have begun one.

        Args:
            workers: their numbers.
            random: take random actions without calling the policy.
        """
        self._check_idle()
        if not random and not self.prepared:
            self._prepare()
        for worker in set(workers) - self.at_work:
            block = 0 if self._memory is None else self._memory.next_block(worker)
            self._start(worker, ("batch", random, block), self._finished)

    def _finished(self, worker: int, result: tuple[TensorDictBase | None, int]) -> bool:
        self._ready[worker] = result
        return True

    def wait(self, wanted: set[int] | None = None, *, count: int = 1) -> set[int]:
        """Wait until workers have finished their batch.

        Args:
            wanted: the workers to wait for; None for any ``count`` of them.
            count: how many workers to wait for.

        Returns:
            All workers that have finished a batch.

        Raises:
            WorkerError: a worker raised, or ended; all are stopped then.
            WorkerTimeout: a worker took too long; all are stopped then.
        """

        def late() -> int | None:
            if wanted is None and len(self._ready) >= count:
                return None
            return min(self._collecting if wanted is None else self._collecting & wanted, default=None)

        self._hear_until(late, self._timeout, "Worker {} did not finish a batch within {} s.")
        return set(self._ready)

    def steps(self, workers: Iterable[int]) -> list[int]:
        """Return how many steps the finished batch of each of these workers has."""
        return [self._ready[worker][1] for worker in workers]

    def take(self, workers: Iterable[int]) -> list[TensorDictBase]:
        """Take the finished batches of workers, which the caller copies before these workers begin another batch."""
        batches: list[TensorDictBase] = []
        for worker in workers:
            batch, _ = self._ready.pop(worker)
            if batch is None:
                assert self._memory is not None
                batch = self._memory.batch(worker)
            batches.append(batch)
        return batches

    def take_kept(self, worker: int | None) -> TensorDictBase | None:
        """Take a finished batch for the caller to keep, unless the memory has ``one_block``.

        Args:
            worker: whose batch; None for those of all workers as one, ``[workers, ...]``.

        Returns:
            The batch; None if those of all workers are in several places.
        """
        workers = range(self.n) if worker is None else (worker,)
        if self._memory is None or any(self._ready[each][0] is not None for each in workers):
            return None if worker is None else self._ready.pop(worker)[0]
        batch = self._memory.kept_batch(worker)
        if batch is not None:
            for each in workers:
                del self._ready[each]
        return batch

    def begin_anew(self) -> None:
        """Drop the batches that workers collect, and let all workers begin new episodes."""
        self.wait(self.at_work)
        self._ready.clear()
        self.call_all("reset")

    # -- weights --------------------------------------------------------------------------------------------------

    def write_weights(self, weights: Any, attributes: Mapping[str, Any] | None = None) -> None:
        """Write weights for the batches and requests that begin from now on.

        Args:
            weights: a module, a TensorDict of parameters, or a state dict; None counts the version up alone.
            attributes: values by name for attributes of the policies.

        Raises:
            PolicyError: they do not fit.
        """
        for worker in self.requested:
            # A request runs with the weights that were set when the caller started it, so wait until its worker has
            # read them. Another thread may be receiving the messages of the workers: none is received here.
            while not self._flags[worker * PER_WORKER + HAS_WEIGHTS] and not self.pool.has_message(worker):
                time.sleep(_LOOK)
        self.weights.write(weights, attributes)

    # -- the end --------------------------------------------------------------------------------------------------

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT, why: str = "stopped by shutdown()") -> None:
        """End the workers. Calling it again does nothing."""
        if self._stopped is not None:
            return
        self._stopped = why
        self._calls.clear()
        self._ready.clear()
        self._finalizer.detach()
        flags = getattr(self, "_flags", None)
        if flags is not None and self.pool.is_ours:
            for worker in range(self.n):
                flags[worker * PER_WORKER + STOP] = 1
        self.pool.stop(timeout)
