"""WorkerGroup: the caller's side of the workers of a collector."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

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
        num_threads: threads that torch uses in each.
        timeout: seconds that a batch may take; None: no limit.
        start_timeout: seconds that all workers may take to start; None: no limit.
        method: how processes are started, see :class:`~steppe.workers.Pool`.
        one_block: the caller does not keep batches, see :class:`~steppe.collectors.batch_memory.BatchMemory`.

    Attributes:
        reports: the first message of each worker.
        weights: the weights in shared memory, which the workers read.

    Raises:
        WorkerError: a worker raised while it began, or ended.
        WorkerTimeout: one was not ready in time.
    """

    def __init__(
        self,
        name: str,
        tasks: list[WorkerTask],
        source: SourcePolicy | None,
        *,
        num_threads: int = 1,
        timeout: float | None = None,
        start_timeout: float | None = None,
        method: str | None = None,
        one_block: bool = False,
    ) -> None:
        self._name, self.n, self._timeout, self._one_block = name, len(tasks), timeout, one_block
        self._stopped: str | None = None
        self._memory: BatchMemory | None = None
        #: The workers that collect a batch, the batches that were not taken yet, and the workers that run a request.
        self._collecting: set[int] = set()
        self._ready: dict[int, tuple[TensorDictBase | None, int]] = {}
        #: The block of memory in which each worker writes its batch.
        self._blocks = [0] * self.n
        self._requested: set[int] = set()
        self.prepared = False
        self.pool = Pool(self.n, ENTRY, method=method, preload=_PRELOAD, label="collector")
        self._finalizer = weakref.finalize(self, self.pool.stop)
        try:
            self.pool.begin(tasks, num_threads=num_threads)
            self.reports: list[Report] = self._reported(start_timeout)
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
        end = None if timeout is None else time.monotonic() + timeout
        reports: dict[int, Report] = {}
        while len(reports) < self.n:
            for worker in range(self.n):
                if worker not in reports and self.pool.has_message(worker):
                    reports[worker] = self.pool.receive(worker)
            late = min(set(range(self.n)) - set(reports), default=None)
            if late is None:
                break
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0:
                raise WorkerTimeout(
                    f"Worker {late} has not made its environment and policy within start_timeout={timeout:g} s. "
                    "Give it longer, or start_timeout=None for no limit, if it is not stuck.",
                    worker=late,
                )
            self.pool.wait_any(remaining)
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
        if self._requested:
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

    def _sleep(self, timeout: float | None) -> None:
        """Sleep until a worker sends something; raise its error if it has sent a message while none was due."""
        for worker in self.pool.wait_any(timeout):
            if worker not in self._collecting and worker not in self._requested:
                self.pool.unexpected(worker)

    # -- batches --------------------------------------------------------------------------------------------------

    @property
    def at_work(self) -> set[int]:
        """The workers that collect a batch, or whose batch was not taken yet."""
        return {*self._collecting, *self._ready}

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
            with uninterrupted():
                block = 0 if self._memory is None else self._memory.free_block([worker])
                assert block is not None  # a batch that is kept leaves another block free
                self._blocks[worker] = block
                self._flags[worker * PER_WORKER + STOP] = 0
                self.pool.call(worker, ("batch", random, block))
                self._collecting.add(worker)

    def interrupt(self) -> None:
        """End the batches and requests of workers at their next step; each still sends its last message."""
        for worker in self._collecting | self._requested:
            self._flags[worker * PER_WORKER + STOP] = 1

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
        end = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            while True:
                self._look()
                have = set(self._ready)
                if (wanted <= have) if wanted is not None else len(have) >= count:
                    return have
                self._sleep(None if end is None else end - time.monotonic())
                if end is not None and time.monotonic() >= end:
                    self._look()
                    late = min(self._collecting if wanted is None else wanted - set(self._ready), default=None)
                    if late is not None:
                        raise WorkerTimeout(
                            f"Worker {late} did not finish a batch within {self._timeout} s.", worker=late
                        )
        except WorkerError as error:
            self.stop_after(error)
            raise

    def _look(self) -> None:
        for worker in sorted(self._collecting):
            if self.pool.has_message(worker):
                with uninterrupted():
                    self._ready[worker] = self.pool.receive(worker)
                    self._collecting.discard(worker)

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
                batch = self._memory.batch(self._blocks[worker], worker)
            batches.append(batch)
        return batches

    def take_one(self, worker: int) -> TensorDictBase:
        """Take the finished batch of a worker, for the caller to keep."""
        batch, _ = self._ready.pop(worker)
        if batch is not None:
            return batch
        assert self._memory is not None
        return self._memory.kept_batch(self._blocks[worker], worker)

    def take_all(self) -> TensorDictBase | None:
        """Take the finished batches of all workers as one, ``[workers, ...]``; None if they are in several places.

        The caller may keep it, unless the memory has ``one_block``.
        """
        block = self._blocks[0]
        if self._memory is None or any(batch is not None for batch, _ in self._ready.values()):
            return None
        if any(other != block for other in self._blocks):
            return None
        self._ready.clear()
        return self._memory.batch(block, None) if self._one_block else self._memory.kept_batch(block, None)

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
        for worker in list(self._requested):
            # A request runs with the weights that were set when the caller started it, so wait until its worker has
            # read them. Another thread may be receiving the messages of the workers: none is received here.
            while not self._flags[worker * PER_WORKER + HAS_WEIGHTS] and not self.pool.has_message(worker):
                time.sleep(_LOOK)
        self.weights.write(weights, attributes)

    # -- requests -------------------------------------------------------------------------------------------------

    @property
    def requested(self) -> set[int]:
        """The workers that run a request."""
        return self._requested

    def request(self, messages: dict[int, Any]) -> None:
        """Start a call in workers that send several messages before they end it."""
        self.wait(self._collecting & messages.keys())
        self.pool.in_step = False
        for worker, message in messages.items():
            with uninterrupted():
                self._flags[worker * PER_WORKER + STOP] = self._flags[worker * PER_WORKER + HAS_WEIGHTS] = 0
                self.pool.call(worker, message)
                self._requested.add(worker)

    def hear(self, timeout: float | None, keep: Callable[[int, Any], None]) -> None:
        """Receive the messages of workers that run a request; wait for one if none has come.

        Args:
            timeout: seconds to wait at most.
            keep: called with a worker and its message ``(kind, ...)``; the last one is of kind ``"end"``. Ctrl-C cannot
                interrupt it.

        Raises:
            WorkerError: a worker raised, or ended; all are stopped then.
        """
        try:
            if not self._heard(keep) and self._requested:
                self._sleep(timeout)
                self._look()
                self._heard(keep)
        except WorkerError as error:
            self.stop_after(error)
            raise

    def _heard(self, keep: Callable[[int, Any], None]) -> bool:
        received = False
        for worker in sorted(self._requested):
            while worker in self._requested and self.pool.has_message(worker):
                with uninterrupted():
                    message = self.pool.receive(worker)
                    keep(worker, message)
                    if message[0] == "end":
                        self._requested.discard(worker)
                received = True
        if not self._requested:
            self.pool.in_step = True
        return received

    # -- the end --------------------------------------------------------------------------------------------------

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT, why: str = "stopped by shutdown()") -> None:
        """End the workers. Calling it again does nothing."""
        if self._stopped is not None:
            return
        self._stopped = why
        self._collecting.clear()
        self._ready.clear()
        self._requested.clear()
        self._finalizer.detach()
        flags = getattr(self, "_flags", None)
        if flags is not None and self.pool.is_ours:
            for worker in range(self.n):
                flags[worker * PER_WORKER + STOP] = 1
        self.pool.stop(timeout)
