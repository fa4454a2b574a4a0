"""WorkersBackend: worker processes, each with environments and a copy of a collector's policy."""

from __future__ import annotations

import math
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from tensordict import TensorDictBase

from steppe.collectors import collector_arguments as arguments
from steppe.collectors.batch_memory import BatchMemory
from steppe.collectors.collector_backend import CollectorBackend
from steppe.collectors.delivery import DELIVERY_SETTINGS
from steppe.collectors.weights import SourcePolicy, values_for
from steppe.collectors.worker_messages import Report, tasks_of
from steppe.envs import done_groups, spread_seed
from steppe.errors import ClosedError, PolicyError, SpecError, WorkerError, WorkerTimeout
from steppe.specs import Composite
from steppe.workers import (
    AFTER_AN_ERROR,
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    exclusive,
    interrupted,
    pickled,
    uninterrupted,
)

if TYPE_CHECKING:
    from steppe.collectors.engine import Collector

__all__ = ["WorkersBackend"]

#: Frames of a batch if ``frames_per_batch`` is not given.
_FRAMES = 200

#: Seconds between two checks whether a worker has read its weights.
_LOOK = 0.0005

#: Receives a message of a worker that runs a call; returns whether it is the last one.
Receive: TypeAlias = Callable[[int, Any], bool]


class WorkersBackend(CollectorBackend):
    """Worker processes that collect whole batches by themselves, each with a ``Collector`` of its own.

    A worker sends a short message for each batch, and takes over new weights between batches. They start in two phases,
    because the layout of a batch is known only when the policy has acted: after the first step, all workers get one
    shared memory, in which each has a row. Data without a fixed layout comes as messages. ``("collector", "traj_ids")``
    are unique over all workers. The error of a worker reaches the caller with its traceback, and a killed worker is
    noticed at once; after either, all workers are stopped. A subclass says when workers begin a batch, and what a batch
    of the collector is made of.

    Args:
        collector: the collector that this is for.
        makers: the factory of each worker's environment.
        settings: the arguments of the collector.

    Attributes:
        pool: the workers.
        reports: the first message of each worker.
        weights: the weights that the workers read.
        batch_timeout, slot_len, num_slots: the arguments of the collector for requests.
        frames_of_all: whether ``frames_per_batch=`` counts the frames of all workers together, not of each.

    Raises:
        WorkerError: a worker raised while it began, or ended.
        WorkerTimeout: one was not ready in time.
    """

    frames_of_all: ClassVar[bool] = True

    def __init__(self, collector: Collector, makers: list[Any], settings: Mapping[str, Any]) -> None:
        super().__init__(collector)
        name, n = type(collector).__name__, len(makers)
        self._name, self.num_workers = name, n
        policy, factory = settings["policy"], settings["policy_factory"]
        wanted = _FRAMES if settings["frames_per_batch"] is None else settings["frames_per_batch"]
        numbers = arguments.one_for_each(name, "frames_per_batch", wanted, n, "numbers")
        frames = [arguments.whole_number("frames_per_batch", number) for number in numbers]
        if self.frames_of_all and not isinstance(wanted, Sequence):
            frames = [-(-number // n) for number in frames]
        source = self._source_policy = None if policy is None else SourcePolicy(policy, name)
        self._made_by_workers = factory is not None
        if collector.update_at_each_batch and self._made_by_workers:
            raise PolicyError(
                f"{name}: update_at_each_batch=True takes over the weights of policy=, and policy_factory= makes one "
                "in each worker: call update_policy_weights_(policy) instead."
            )
        tasks = tasks_of(name, makers, frames, settings, interruptible=collector.preemptive_threshold < 1.0)
        self.batch_timeout = settings["batch_timeout"]
        self._stopped: str | None = None
        self._failure: WorkerError | None = None
        self._memory: BatchMemory | None = None
        self._prepared = self._delivers = False
        #: The workers that run a call, and what receives their messages.
        self._calls: dict[int, Receive] = {}
        #: The batches that were not taken yet, None for those in memory, and their steps.
        self._ready: dict[int, tuple[TensorDictBase | None, int]] = {}
        self.pool = collector.new_group(n, settings)
        self._finalizer = weakref.finalize(self, self.pool.stop)
        try:
            self.pool.begin(tasks, num_threads=settings["num_sub_threads"])
            self.reports = self._reported(settings["start_timeout"])
            self.pool.preload(self.reports[0].modules)
            fields = self.reports[0].fields if source is None else source.shared_fields(self.reports[0].fields)
            self.pool.connect(fields, None if source is None or not fields else source.weights(fields, {}))
            self.weights = self.pool.weights
            self._read_reports(name, settings)
        except BaseException:
            self.abandon()
            raise

    def _reported(self, timeout: float | None) -> list[Report]:
        """Wait for the first message of each worker."""
        reports: dict[int, Report] = {}

        def receive(worker: int, report: Report) -> bool:
            reports[worker] = report
            return True

        self._calls = dict.fromkeys(range(self.num_workers), receive)
        late = (
            "Worker {} has not made its environment and policy within start_timeout={:g} s. Give it longer, or "
            "start_timeout=None for no limit, if it is not stuck."
        )
        self._hear_until(lambda: min(self._calls, default=None), timeout, late)
        return [reports[worker] for worker in range(self.num_workers)]

    def _read_reports(self, name: str, settings: Mapping[str, Any]) -> None:
        """Set the attributes that are known once the workers have made their environments."""
        collector, reports = self._collector, self.reports
        sizes = {report.batch_size for report in reports}
        if len(sizes) > 1:
            raise SpecError(f"{name}: the workers' environments have batch sizes {sorted(sizes)}, which differ.")
        self.env_batch_size = torch.Size(reports[0].batch_size)
        self.slot_len, self.num_slots = settings["slot_len"], settings["num_slots"]
        self.frames_per_worker = [report.frames for report in reports]
        self.iterates = collector.schedule is not None or settings["frames_per_batch"] is not None
        self.parts_of_batch = f"{self.frames_per_worker} frames of {len(reports)} workers"
        self.done_groups = done_groups(reports[0].full_done_spec)
        self.agent_declarations = reports[0].declarations

    # -- attributes for the collector and steppe-agents -----------------------------------------------------------

    @property
    def env_info_spec(self) -> Composite:
        return self.reports[0].env_info_spec

    @property
    def policy_version(self) -> int:
        return self.weights.version

    def check_open(self) -> None:
        message = f"This {self._name} was {self._stopped}: make a new one."
        if self._failure is not None:
            raise self._failure.again(f"{message} The error: {self._failure}")
        if self._stopped is not None:
            raise ClosedError(message)
        self.pool.check_owner(self._name)

    # -- calls ----------------------------------------------------------------------------------------------------

    def ask(self, messages: dict[int, Any]) -> dict[int, Any]:
        """Call some workers and return their answers, after the batches that they are collecting.

        Raises:
            ClosedError: the workers were stopped.
            StateError: a request is running.
            WorkerError: a worker raised, and all can be used on; or a worker ended, and all are stopped.
        """
        self.check_open()
        self._check_idle()
        self.wait(self._collecting & messages.keys())
        try:
            return self.pool.ask(messages)
        except BaseException as error:
            self.stop_after(error, unless=self.pool.in_step)
            raise

    def _check_idle(self) -> None:
        if self._collector._requests is not None:
            self._collector._requests.check_idle()

    def hand(self, message: Any, fds: list[int]) -> None:
        """Send all workers descriptors of shared memory, and a message with its layout."""
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
            self._failure = error if isinstance(error, WorkerError) and self._stopped is None else self._failure
            why = AFTER_AN_ERROR if isinstance(error, Exception) else interrupted("worker", self.pool.grace)
            self._stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE, why)

    def ask_all(self, *message: Any) -> list[Any]:
        """Call all workers with the same message; return their answers in order."""
        answers = self.ask(dict.fromkeys(range(self.num_workers), message))
        return [answers[worker] for worker in range(self.num_workers)]

    def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of the collector of each worker; return the results in order."""
        return self.ask_all("collector", method, args, kwargs)

    def _prepare(self) -> None:
        """Let all workers take the first step of the policy, and give them shared memory for their batches."""
        try:
            specs = self.ask_all("prepare")
            is_fixed = specs[0] is not None and all(spec == specs[0] for spec in specs)
            self._delivers = is_fixed and self._let_workers_deliver(specs[0])
            if is_fixed and not self._delivers:
                self._memory = self.pool.batch_memory(specs[0], one_block=self._collector.return_same_td)
            self._prepared = True
        except Exception as error:
            self.stop_after(error)
            raise

    def _let_workers_deliver(self, spec: Composite) -> bool:
        """Give workers what they write to the replay buffer with; False if batches come to the caller."""
        writers = self._collector.writers(spec, self.num_workers)
        if writers is None:
            return False
        settings = {name: getattr(self._collector, name) for name in DELIVERY_SETTINGS}
        self.ask({worker: ("deliver_to", pickled((each, settings))) for worker, each in enumerate(writers)})
        return True

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
        try:
            with uninterrupted():
                self.pool.begin_call(worker)
                self.pool.call(worker, message)
                self._calls[worker] = receive
        except WorkerError as error:
            self.stop_after(error)
            raise

    @property
    def requested(self) -> set[int]:
        """The workers that run calls of others than this backend."""
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
        received, failure = False, None
        for worker in sorted(self._calls):
            while worker in self._calls and self.pool.has_message(worker):
                received = True
                try:
                    with uninterrupted():
                        if self._calls[worker](worker, self.pool.receive(worker)):
                            del self._calls[worker]
                except WorkerError as error:  # raised after the messages of the others, which may have rows
                    failure = failure or error
                    break
        if failure is not None:
            raise failure
        return received

    def _hear_until(self, late: Callable[[], int | None], timeout: float | None, problem: str) -> None:
        """Receive messages until ``late`` returns no worker; ``problem`` is the error after ``timeout`` seconds."""
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
            self.pool.interrupt(worker)

    # -- batches --------------------------------------------------------------------------------------------------

    def collect(self, random_frames: int) -> tuple[TensorDictBase | None, int]:
        batch, frames = self._joined_batch(random_frames)
        if batch is None:
            return None, frames
        batch.names = [None] * (batch.batch_dims - 1) + ["time"]
        device = self._collector.storing_device
        if device is not None and batch.device != device:
            batch = batch.to(device)
        return batch, frames

    @abstractmethod
    def _joined_batch(self, random_frames: int) -> tuple[TensorDictBase | None, int]:
        """Collect a batch on the device of the workers; see :meth:`collect`.

        ``batch_lost`` is set before the data of a worker is taken: from then on an interrupt loses it.
        """

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
        if not random and not self._prepared:
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

        self._hear_until(late, self.batch_timeout, "Worker {} did not finish a batch within {} s.")
        return set(self._ready)

    def steps(self, workers: Iterable[int]) -> list[int]:
        """Return how many steps the finished batch of each of these workers has."""
        return [self._ready[worker][1] for worker in workers]

    def count_delivered(self, workers: Iterable[int]) -> int | None:
        """Return the frames of finished batches that workers have written to the buffer; None if one has come here."""
        finished = list(workers)
        if not self._delivers or any(self._ready[worker][0] is not None for worker in finished):
            return None
        return sum(self._ready.pop(worker)[1] for worker in finished) * self.env_batch_size.numel()

    def settle(self, timeout: float | None = None) -> int:
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self._delivers and self._collecting and time.monotonic() < end:
            self.hear(None if timeout is None else end - time.monotonic())
        return self.count_delivered(self._ready) or 0

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
            worker: whose batch; None for the batches of all workers as one, ``[workers, ...]``.

        Returns:
            The batch; None if the batches of all workers are in several places.
        """
        workers = range(self.num_workers) if worker is None else (worker,)
        if self._memory is None or any(self._ready[each][0] is not None for each in workers):
            return None if worker is None else self._ready.pop(worker)[0]
        batch = self._memory.kept_batch(worker)
        if batch is not None:
            for each in workers:
                del self._ready[each]
        return batch

    def number_trajectories(self, first: int, distance: int) -> None:
        n = self.num_workers
        self.ask({worker: ("number", first + distance * worker, distance * n) for worker in range(n)})

    def begin_anew(self) -> None:
        self.wait(self.at_work)
        self._ready.clear()
        self.call_all("reset")

    # -- episodes, seeds, weights ---------------------------------------------------------------------------------

    def reset(self, kwargs: dict[str, Any]) -> None:
        self.call_all("reset", **kwargs)

    def set_seed(self, seed: int | Sequence[int] | None, static_seed: bool) -> int | None:
        def seed_worker(worker: int, number: int | None) -> int | None:
            following: int | None = self.ask({worker: _call("set_seed", number, static_seed)})[worker]
            return following

        return spread_seed(seed, self.num_workers, static=static_seed, seed_group=seed_worker)[1]

    def seed_policies(self, seeds: Sequence[int]) -> None:
        self.ask({worker: _call("seed_policy", seed) for worker, seed in enumerate(seeds)})

    def call_policy(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        return [result for (result,) in self.call_all("call_policy", name, *args, **kwargs)]

    def call_envs(self, name: str, call: tuple[Any, Any] | None) -> list[Any]:
        method, args, kwargs = ("get_attr", (), {}) if call is None else ("call", *call)
        return [value for values in self.call_all(method, name, *args, **kwargs) for value in values]

    def set_in_envs(self, name: str, values: list[object]) -> None:
        ends = list(accumulate(len(each) for each in self.call_all("get_attr", name)))
        parts = [values[first:end] for first, end in zip([0, *ends], ends, strict=False)]
        self.ask({worker: _call("set_attr", name, part) for worker, part in enumerate(parts)})

    def _update_if_asked(self) -> None:
        if self._collector.update_at_each_batch and self._source_policy is not None:
            self._collector.update_policy_weights_()

    def update_weights(self, weights: Any, attributes: Mapping[str, Any] | None) -> None:
        attributes, fields = attributes or {}, self.weights.fields
        if weights is None and self._made_by_workers and not attributes:
            raise PolicyError(
                "The policy was made in the workers, by policy_factory: say which weights they are to take, "
                "update_policy_weights_(policy)."
            )
        source = self._source_policy
        if weights is None and source is not None:
            weights = source.weights(fields, attributes)
        values_for(fields, weights)  # weights that do not fit are refused before an attribute is set
        if source is not None:
            source.set_attributes(attributes)
        elif attributes and self._made_by_workers:
            self._check_attributes(attributes)
        elif attributes:
            raise PolicyError(f"Random actions have no attributes, found {sorted(attributes)}.")
        for worker in self.requested:
            # A request runs with the weights that were set when the caller started it, so wait until its worker has
            # read them. Another thread may be receiving the messages of the workers: none is received here.
            while not self.pool.has_read_weights(worker) and not self.pool.has_message(worker):
                time.sleep(_LOOK)
        self.weights.write(weights, attributes)

    @exclusive("update_policy_weights_ with attributes=")
    def _check_attributes(self, names: Iterable[str]) -> None:
        self.ask({0: ("check_attributes", list(names))})

    def state_dict(self) -> dict[str, Any]:
        return {f"worker{worker}": state for worker, state in enumerate(self.call_all("state_dict"))}

    def load_state_dict(self, state_dict: dict[str, Any], *, strict: bool) -> None:
        self.check_open()
        n = self.num_workers
        names = [f"worker{worker}" for worker in range(n)]
        state_names = sorted(key for key in state_dict if key.startswith("worker"))
        if state_names != sorted(names):
            raise SpecError(f"A state of {n} workers is needed, found {state_names}.")
        messages = {n: _call("load_state_dict", state_dict[name], strict=strict) for n, name in enumerate(names)}
        self.ask(messages)
        weights = state_dict[names[0]]["policy_state_dict"]
        if weights and self.weights.fields:
            self.weights.write(weights)

    # -- the end --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the workers, which ends the wait of another thread for a batch."""
        self.pool.kill()

    def shutdown(self, timeout: float, close_env: bool) -> None:
        self._stop(timeout, "stopped by shutdown()")

    def abandon(self) -> None:
        self._stop(SHUTDOWN_TIMEOUT_AFTER_FAILURE, AFTER_AN_ERROR)

    def _stop(self, timeout: float, why: str) -> None:
        """End the workers. Calling it again does nothing."""
        if self._stopped is not None:
            return
        self._stopped = why
        self._calls.clear()
        self._ready.clear()
        self._finalizer.detach()
        self.pool.stop(timeout)


def _call(method: str, *args: Any, **kwargs: Any) -> tuple[object, ...]:
    """Return the message that calls a method of a worker's collector."""
    return "collector", method, args, kwargs
