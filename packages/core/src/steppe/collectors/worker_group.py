"""Workers that each collect batches, as the collector that leads them sees them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensordict import TensorDictBase

from steppe.collectors.shared_weights import SharedWeights
from steppe.collectors.weights import SourcePolicy
from steppe.collectors.worker_messages import ENTRY, HAS_WEIGHTS, PER_WORKER, STOP, Report, WorkerTask
from steppe.errors import ClosedError, StateError, WorkerError, WorkerTimeout
from steppe.storage import Storage
from steppe.workers import (
    AFTER_AN_ERROR,
    PATIENCE,
    PATIENCE_AFTER_FAILURE,
    Pool,
    Ticket,
    interrupted,
    other_process,
    uninterrupted,
)

__all__ = ["WorkerGroup"]

_PRELOAD = ["steppe.collectors.serving"]
_COLLECT = 1

#: Seconds between two looks whether a worker has taken over its weights.
_LOOK = 0.0005


class WorkerGroup:
    """Workers with a collector each.

    Start-up has two phases: what a batch, or a step of a request, holds is known once the policy has acted; then all
    workers are given one memory, where each has its row. Data without a fixed place comes as messages.

    Args:
        tasks: what each is sent.
        source: the caller's policy, of which each has a copy; None where they make their own, or have none.
        num_threads: threads that torch uses in each.
        timeout: seconds that a batch may take.
        start_timeout: seconds until all have to be ready; None for as long as it takes.
        method: how processes are started, see :class:`~steppe.workers.Pool`.

    Attributes:
        reports: what the workers said when they were ready.
        weights: those that they take over.

    Raises:
        WorkerError: a worker raised while it began, or ended.
        WorkerTimeout: one was not ready in time.
    """

    def __init__(
        self,
        tasks: list[WorkerTask],
        source: SourcePolicy | None,
        *,
        num_threads: int = 1,
        timeout: float | None = None,
        start_timeout: float | None = None,
        method: str | None = None,
    ) -> None:
        self.n, self._timeout = len(tasks), timeout
        self._stopped: str | None = None
        self._storage: Storage | None = None
        self._tickets: dict[int, Ticket] = {}
        self._ready: dict[int, tuple[int, TensorDictBase | None]] = {}
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
            self.stop(PATIENCE_AFTER_FAILURE, AFTER_AN_ERROR)
            raise

    def _reported(self, timeout: float | None) -> list[Report]:
        """What each worker says when it is ready."""
        end = None if timeout is None else time.monotonic() + timeout
        reports: dict[int, Report] = {}
        while len(reports) < self.n:
            for worker in range(self.n):
                if worker not in reports and self.pool.ended(Ticket(worker, None)):
                    reports[worker] = self.pool.receive(worker)
            late = min(set(range(self.n)) - set(reports), default=None)
            if late is None:
                break
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise WorkerTimeout(
                    f"Worker {late} has not made its environment and policy within start_timeout={timeout:g} s. "
                    "Give it longer, or start_timeout=None for as long as it takes, where that is no mistake.",
                    worker=late,
                )
            self.pool.wait_any(left)
        return [reports[worker] for worker in range(self.n)]

    # -- calls ----------------------------------------------------------------------------------------------------

    def check(self, user: object) -> None:
        """Raise where the workers cannot be used any more."""
        if self._stopped is not None:
            raise ClosedError(f"This {type(user).__name__} was {self._stopped}: make a new one.")
        if not self.pool.is_ours:
            raise other_process(type(user).__name__, self.pool.owner)

    def ask(self, messages: dict[int, Any]) -> dict[int, Any]:
        """Ask some workers something, once they have done what they are at.

        Raises:
            WorkerError: one raised; all go on. Or one ended; all are stopped.
        """
        if self._requested:
            raise StateError("A job is running: get() its result, or job.cancel() it.")
        for worker in messages:
            if worker in self._tickets:
                self.wait({worker})
        try:
            return self.pool.ask(messages)
        except BaseException as error:
            self._stop_after(error, unless=self.pool.in_step)
            raise

    def hand(self, message: Any, fds: list[int]) -> None:
        """Give all workers descriptors of shared memory, with a message that says what it holds."""
        try:
            self.pool.hand(message, fds)
        except BaseException as error:
            self._stop_after(error, unless=self.pool.in_step and not isinstance(error, Exception))
            raise

    def stop_after(self, error: WorkerError) -> None:
        """Stop the workers after the error of one of them, which the caller is about to raise."""
        self._stop_after(error, unless=False)

    def ask_all(self, *message: Any) -> list[Any]:
        """Ask all workers the same thing."""
        answers = self.ask(dict.fromkeys(range(self.n), message))
        return [answers[worker] for worker in range(self.n)]

    def _prepare(self) -> None:
        """Have all workers take the first step in which the policy acts, and give them memory for what it holds."""
        try:
            specs = self.ask_all("prepare")
            if specs[0] is not None and all(spec == specs[0] for spec in specs):
                self._storage = Storage(specs[0], (self.n,), kind="shared")
                handle = self._storage.handle()
                self.pool.hand(("batches", handle.spec, handle.rows, handle.nbytes), [handle.fd])
            self.prepared = True
        except BaseException as error:
            self._stop_after(error, unless=self.pool.in_step and not isinstance(error, Exception))
            raise

    def _stop_after(self, error: BaseException, *, unless: bool) -> None:
        """Stop after an error or an interrupt, unless the workers can be used on."""
        if not unless:
            why = AFTER_AN_ERROR if isinstance(error, Exception) else interrupted("worker", self.pool.grace)
            self.stop(PATIENCE_AFTER_FAILURE, why)

    # -- batches --------------------------------------------------------------------------------------------------

    @property
    def at_work(self) -> set[int]:
        """Workers that collect, or whose batch has not been taken."""
        return {*self._tickets, *self._ready}

    def begin(self, workers: Iterable[int], *, random: bool = False) -> None:
        """Have workers begin a batch, those that have not.

        Args:
            workers: which.
            random: of random actions; the policy is not called, and the batches come as messages.
        """
        if self._requested:
            raise StateError("A job is running: get() its result, or job.cancel() it.")
        if not random and not self.prepared:
            self._prepare()
        for worker in workers:
            if worker in self._tickets or worker in self._ready:
                continue
            with uninterrupted():
                self._flags[worker * PER_WORKER + STOP] = 0
                if self._storage is not None and not random:
                    self._tickets[worker] = self.pool.order(worker, _COLLECT)
                else:
                    self._tickets[worker] = self.pool.call(worker, ("batch", random))

    def interrupt(self) -> None:
        """Let the workers that collect end their batch at the next step."""
        for worker in self._tickets:
            self._flags[worker * PER_WORKER + STOP] = 1

    def wait(self, wanted: set[int] | None = None, *, count: int = 1) -> set[int]:
        """Wait for workers to have their batch.

        Args:
            wanted: return when these have; None: when so many have.
            count: how many.

        Returns:
            All that have one.

        Raises:
            WorkerError: one raised, or ended; all are stopped then.
            WorkerTimeout: one took too long.
        """
        end = None if self._timeout is None else time.monotonic() + self._timeout
        try:
            while True:
                self._look()
                have = set(self._ready)
                if (wanted <= have) if wanted is not None else len(have) >= count:
                    return have
                self._refuse_unexpected(self.pool.wait_any(None if end is None else end - time.monotonic()))
                if end is not None and time.monotonic() >= end:
                    self._look()
                    late = min(set(self._tickets) if wanted is None else wanted - set(self._ready), default=None)
                    if late is not None:
                        raise WorkerTimeout(
                            f"Worker {late} did not finish a batch within {self._timeout} s.", worker=late
                        )
        except WorkerError:
            self.stop(PATIENCE_AFTER_FAILURE, AFTER_AN_ERROR)
            raise

    def _refuse_unexpected(self, heard: list[int]) -> None:
        """Raise what a worker says from whom nothing is due but an error, or its end."""
        for worker in heard:
            ticket = self._tickets.get(worker)
            if ticket is None or (ticket.order is not None and not self.pool.ended(ticket)):
                self.pool.unexpected(worker)

    def _look(self) -> None:
        for worker, ticket in list(self._tickets.items()):
            if self.pool.ended(ticket):
                with uninterrupted():
                    found = self.pool.result(ticket)
                    del self._tickets[worker]
                    self._ready[worker] = (found, None) if ticket.order is not None else (found[1], found[0])

    def take(self, workers: list[int]) -> tuple[list[TensorDictBase], list[int]]:
        """Take the batches of workers that have one: as they lie in shared memory, to be copied, and their steps."""
        batches, steps = [], []
        for worker in workers:
            count, batch = self._ready.pop(worker)
            if batch is None:
                assert self._storage is not None
                batch = self._storage.td[worker]
            batches.append(batch)
            steps.append(count)
        return batches, steps

    def take_all(self) -> TensorDictBase | None:
        """All batches as one view of shared memory ``[workers, ...]``, or None where they lie elsewhere."""
        if self._storage is None or any(batch is not None for _, batch in self._ready.values()):
            return None
        self._ready.clear()
        return self._storage.td

    def begin_anew(self) -> None:
        """Drop the batches that are under way, and let all workers begin new episodes."""
        self.wait({*self._tickets, *self._ready})
        self._ready.clear()
        self.ask_all("reset", {})

    # -- weights --------------------------------------------------------------------------------------------------

    def check_attributes(self, names: list[str]) -> None:
        """Raise if the policy that the first worker has made lacks an attribute.

        Raises:
            WorkerError: naming the attribute; the workers go on.
        """
        self.ask({0: ("check_attributes", names)})

    def write_weights(self, given: Any, attributes: Mapping[str, Any] | None = None) -> None:
        """Write weights for the batches and requests that begin from now on.

        Args:
            given: a module, a TensorDict of parameters, or a state dict; None counts the version up alone.
            attributes: values by name for attributes of the policies.

        Raises:
            PolicyError: they do not fit.
        """
        for worker in list(self._requested):
            # A request that was begun has the weights of its beginning, however late its worker comes to it. Another
            # thread may listen to the workers: nothing is read here.
            while not self._flags[worker * PER_WORKER + HAS_WEIGHTS] and not self.pool.ended(Ticket(worker, None)):
                time.sleep(_LOOK)
        self.weights.write(given, attributes)

    # -- requests -------------------------------------------------------------------------------------------------

    @property
    def requested(self) -> set[int]:
        """Workers that run a request."""
        return self._requested

    def request(self, messages: dict[int, Any]) -> None:
        """Have workers run something that they tell of piece by piece."""
        for worker in messages:
            if worker in self._tickets:
                self.wait({worker})
        self.pool.in_step = False
        for worker, message in messages.items():
            with uninterrupted():
                self._flags[worker * PER_WORKER + STOP] = self._flags[worker * PER_WORKER + HAS_WEIGHTS] = 0
                self.pool.call(worker, message)
                self._requested.add(worker)

    def hear(self, timeout: float | None, keep: Callable[[int, Any], None]) -> None:
        """Have what workers with a request have told kept, once one has told something.

        Args:
            timeout: seconds to wait at most.
            keep: called with a worker and ``(kind, ...)``, the last of kind ``"end"``. Ctrl-C comes before or after.

        Raises:
            WorkerError: one raised, or ended; all are stopped then.
        """
        try:
            if not self._heard(keep) and self._requested:
                for worker in self.pool.wait_any(timeout):
                    if worker not in self._requested:
                        self.pool.unexpected(worker)
                self._heard(keep)
        except WorkerError:
            self.stop(PATIENCE_AFTER_FAILURE, AFTER_AN_ERROR)
            raise

    def _heard(self, keep: Callable[[int, Any], None]) -> bool:
        found = False
        for worker in sorted(self._requested):
            while worker in self._requested and self.pool.ended(Ticket(worker, None)):
                with uninterrupted():
                    told = self.pool.receive(worker)
                    keep(worker, told)
                    if told[0] == "end":
                        self._requested.discard(worker)
                found = True
        if not self._requested:
            self.pool.in_step = True
        return found

    def interrupt_requests(self) -> None:
        """Let the workers end their requests at the next step; they tell of that."""
        for worker in self._requested:
            self._flags[worker * PER_WORKER + STOP] = 1

    # -- the end --------------------------------------------------------------------------------------------------

    def stop(self, patience: float = PATIENCE, why: str = "stopped by shutdown()") -> None:
        """End the workers. Calling it again does nothing."""
        if self._stopped is not None:
            return
        self._stopped = why
        self._tickets.clear()
        self._ready.clear()
        self._requested.clear()
        self._finalizer.detach()
        flags = getattr(self, "_flags", None)
        if flags is not None and self.pool.is_ours:
            for worker in range(self.n):
                flags[worker * PER_WORKER + STOP] = 1
        self.pool.stop(patience)
