"""WorkerLink: a worker of a collector, which collects whole batches with environments and a policy of its own."""

from __future__ import annotations

import pickle
from collections.abc import MutableSequence
from functools import cached_property
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase

from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.batch_maker import Key
from steppe.collectors.engine import Collector
from steppe.collectors.local_backend import LocalBackend
from steppe.collectors.policy_content import check_attributes
from steppe.collectors.shared_weights import SharedWeights
from steppe.collectors.weights import fields_of
from steppe.collectors.worker_messages import HAS_WEIGHTS, PER_WORKER, STOP, Report
from steppe.storage import Storage
from steppe.workers import ControlBlock, ItemError, Service, Worker

__all__ = ["WorkerLink", "serve"]

#: How errors name the calls of a worker.
_DOING = {"prepare": "the first step", "batch": "a batch"}


class WorkerEnd(Protocol):
    """A worker's end of the connection to the caller: :class:`steppe.workers.Worker` in a process of this machine.

    Attributes:
        index: the number of the worker.
    """

    index: int

    def say(self, value: Any) -> None:
        """Send the caller a message."""

    def pause(self, seconds: float) -> bool:
        """Wait; returns True at once if the caller sends something or ends."""

    def new_modules(self) -> list[str]:
        """Return the plugin modules that this worker has imported."""


class WeightsOfWorker(Protocol):
    """The published weights as a worker sees them; see the methods of :class:`SharedWeights`."""

    def read_into(self, policy: Any, known: int) -> int:
        """Copy the newest weights and attributes into a policy, and return their version."""

    def fill(self, weights: Any) -> None:
        """Set the first weights, which ``policy_factory`` has made in the first worker."""


def serve(worker: Worker, task: dict[str, Any]) -> None:
    """Make a collector, report that it is ready, and collect until the caller ends the worker.

    Args:
        worker: this process.
        task: from :func:`tasks_of`.
    """
    service = WorkerLink(worker, task)
    try:
        worker.say(service.report())
        worker.serve(service)
    finally:
        service.end()


class WorkerLink(Service):
    """Answer the caller with one collector, to which steppe-agents gives the requests of the caller.

    Attributes:
        worker: this process; ``say`` sends the caller a message within a call.
        collector: the collector of this worker.
        backend: the backend of the collector.
        n_workers: how many workers there are.
        copies_batches: whether batches that are sent are copied first, because a pickle of views has all their memory.
    """

    copies_batches = True

    def __init__(self, worker: WorkerEnd, task: dict[str, Any]) -> None:
        self.worker, self.task = worker, task
        settings = {**task, "interruptor": self if task["interruptor"] else None}
        self.collector = Collector(return_same_td=True, **settings)
        backend = self.collector.backend
        assert isinstance(backend, LocalBackend)
        self.backend = backend
        self.n_workers = 1
        self.weights: WeightsOfWorker | None = None
        #: The row of this worker in each block of the shared memory for batches; empty before there is any.
        self._rows: list[dict[Key, torch.Tensor]] = []
        self._block = 0

    def report(self) -> Report:
        """Return the first message to the caller."""
        collector, policy = self.collector, self.collector.policy
        return Report(
            tuple(collector.env.batch_size),
            collector.frames_per_batch,
            collector.env.env_info_spec,
            collector.env.full_done_spec,
            fields_of(policy),
            self.worker.new_modules(),
            AgentDeclarations.of(policy),
        )

    def end(self) -> None:
        """Shut the collector down, after the writer of a replay buffer has written the steps that it holds."""
        try:
            getattr(self.collector.replay_buffer, "flush", bool)()
        finally:
            self.collector.shutdown(raise_on_error=False)

    # -- messages of the caller ---------------------------------------------------------------------------------

    def share(self, worker: Worker, control: ControlBlock, message: Any, fds: list[int]) -> None:
        """Take over the memory of the weights and the flags."""
        n_workers, fields = message
        flags = control.extra.cast("q")[worker.index * PER_WORKER : (worker.index + 1) * PER_WORKER]
        self.connect(n_workers, SharedWeights(fields, fds[0]), flags)

    def connect(self, n_workers: int, weights: WeightsOfWorker, flags: MutableSequence[int] | memoryview[int]) -> None:
        """Begin to read the weights that the caller publishes, and to number trajectories as one worker of several.

        Args:
            n_workers: how many workers there are.
            weights: the weights.
            flags: the flags of this worker: STOP, which the caller sets, and HAS_WEIGHTS.
        """
        self.n_workers, self.weights, self.flags = n_workers, weights, flags
        self.backend.number_trajectories(self.worker.index, n_workers)
        if self.task["policy"] is not None:
            # A net that the policy reads from a global variable was made again in this process, with other weights.
            weights.read_into(self.collector.policy, -1)
        elif self.worker.index == 0:
            # Later updates may name some weights only: the others stay as ``policy_factory`` made them.
            weights.fill(self.collector.policy)

    def take(self, message: Any, fds: list[int]) -> None:
        """Map the shared memory for batches, or for the data of requests."""
        if message[0] == "requests":
            self._lanes.take(message[1], fds)
            return
        _, spec, rows = message
        storage = Storage(spec, rows, kind="shared", fd=fds[0])
        for at in ((block, self.worker.index) for block in range(rows[0])):
            self._rows.append({key: tensor[at] for key, tensor in storage.tensors.items()})
        self._write_to(0)

    def _write_to(self, block: int) -> None:
        """Write the next batch to a block of the shared memory."""
        self._block = block
        self.backend.batches.keep_batches_in(self._rows[block])

    def call(self, message: Any) -> Any:
        """Run the method that a message of the caller names, and return its result."""
        kind, *arguments = message
        doing = _DOING.get(kind, arguments[0] if kind in ("collector", "requests") else kind)
        try:
            return getattr(self, f"_{kind}")(*arguments)
        except Exception as error:
            raise ItemError(self.worker.index, doing) from error

    def collection_stopped(self) -> bool:
        """Whether the caller has asked this worker to end its batch, or request, at the next step."""
        return bool(self.flags[STOP])

    # -- calls ----------------------------------------------------------------------------------------------------

    def _prepare(self) -> Any:
        """Take the first step of the first batch; return the spec of a batch, or None if it has no fixed layout."""
        self.take_weights()
        return self.backend.prepare()

    def _batch(self, random: bool, block: int) -> tuple[TensorDictBase | None, int]:
        """Collect a batch; return it, None if it is in shared memory or delivered, and how many steps it has."""
        if self._rows and block != self._block:
            self._write_to(block)
        if not self.backend.batches.holds_first_step:
            self.take_weights()  # all steps of a batch are made with the weights of its first step
        batch, _ = self.collector.collect(random_frames=int(random))
        assert batch is not None
        steps = self.backend.batches.steps_of_batch
        if self.collector.replay_buffer is not None:
            self.collector.deliver(batch)
            return None, steps
        if not self._rows or random:
            return batch.clone() if self.copies_batches else batch, steps
        for key, target in self._rows[block].items():
            value = batch.get(key)
            if value.data_ptr() != target.data_ptr():  # most entries are written there step by step
                target.copy_(value)
        return None, steps

    def _number(self, first: int, distance: int) -> None:
        self.backend.number_trajectories(first, distance)

    def _deliver_to(self, payload: bytes) -> None:
        """Deliver batches to a replay buffer from now on: the writer of this worker, and how batches are processed."""
        writer, settings = pickle.loads(payload)
        vars(self.collector).update(settings, replay_buffer=writer)
        self.collector.deliver_anew()

    def _collector(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(self.collector, method)(*args, **kwargs)

    def _check_attributes(self, names: list[str]) -> None:
        check_attributes(self.collector.policy, names)

    def _requests(self, method: str, *given: Any) -> Any:
        return getattr(self._lanes, method)(*given)

    @cached_property
    def _lanes(self) -> Any:
        """The object of steppe-agents that runs the caller's requests in this worker."""
        return self.collector.requests.in_worker(self)

    # -- batches --------------------------------------------------------------------------------------------------

    def take_weights(self) -> None:
        """Read the newest weights, and set the flag that says so."""
        assert self.weights is not None
        backend = self.backend
        backend.policy_version = self.weights.read_into(backend.policy, backend.policy_version)
        self.flags[HAS_WEIGHTS] = 1

    def keep_weights(self) -> None:
        """Say that this call runs with the weights of the call before, so the caller may write new ones."""
        self.flags[HAS_WEIGHTS] = 1
