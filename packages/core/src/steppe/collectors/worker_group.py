"""WorkerGroup: the workers of a collector, and how messages, weights and batches reach them and come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Protocol

from steppe.collectors.batch_memory import BatchMemory
from steppe.collectors.shared_weights import SharedWeights
from steppe.collectors.weights import Field, NewWeights
from steppe.collectors.worker_messages import HAS_WEIGHTS, PER_WORKER, STOP
from steppe.errors import NotSupported, StateError
from steppe.specs import Composite
from steppe.workers import SHUTDOWN_TIMEOUT, Pool, other_process

__all__ = ["ProcessGroup", "PublishedWeights", "WorkerGroup"]


#: The module with the function that each process runs.
_SERVING = "steppe.collectors.serving"


class PublishedWeights(Protocol):
    """The weights of a policy that the workers of a group read: :class:`SharedWeights` on one machine.

    Attributes:
        fields: the tensors of the policy.
    """

    fields: list[Field]

    @property
    def version(self) -> int:
        """The number of updates."""

    def write(self, weights: NewWeights = None, attributes: Mapping[str, Any] | None = None) -> int:
        """Publish new weights and attributes; return their version."""


class WorkerGroup(ABC):
    """The workers of one collector, wherever they run: in processes here, in actors, or on other machines.

    A worker makes a :class:`WorkerLink` with its task. ``link.report()`` is its first message, and ``link.call`` gets
    each message of the caller and returns the answer; it may send further messages before. An exception in a worker,
    and the end of one, raise WorkerError where the caller next asks for its message. A worker has at most one call.

    Attributes:
        in_step: whether each message that was sent was answered; if not, the backend stops the group.
        shares_memory: whether :meth:`hand` reaches the workers.
        grace: seconds that workers may take to finish their work after Ctrl-C.
        weights: the weights of the policy, after :meth:`connect`. A call is served with those that were published
            before it, or newer ones.
    """

    in_step: bool = True
    shares_memory: bool = False
    grace: float = SHUTDOWN_TIMEOUT
    weights: PublishedWeights

    @abstractmethod
    def begin(self, payloads: Sequence[Any], *, num_threads: int = 1) -> None:
        """Start a worker for each task; :meth:`receive` returns its report.

        Args:
            payloads: the task of each worker.
            num_threads: threads of torch in each.
        """

    @abstractmethod
    def connect(self, fields: list[Field], initial: NewWeights) -> None:
        """Publish the first weights, when all workers have reported; each worker calls ``link.connect``.

        Args:
            fields: the tensors of the policy.
            initial: their values; None if the workers have them, or make them.
        """

    @abstractmethod
    def call(self, worker: int, message: Any) -> None:
        """Send a message to a worker, without waiting for the answer, which ``receive`` returns."""

    @abstractmethod
    def ask(self, messages: Mapping[int, Any]) -> dict[int, Any]:
        """Send messages to workers, and return the answers, when all have answered; raises the first failure."""

    @abstractmethod
    def has_message(self, worker: int) -> bool:
        """Whether a worker has sent a message that was not received, or has ended."""

    @abstractmethod
    def receive(self, worker: int) -> Any:
        """Wait for the next message of a worker, and return it."""

    @abstractmethod
    def wait_any(self, timeout: float | None = None) -> list[int]:
        """Wait until a worker has sent a message or ended, for ``timeout`` seconds at most; return these workers."""

    @abstractmethod
    def interrupt(self, worker: int) -> None:
        """Let a worker end its call at the next step; ``link.collection_stopped`` is True there."""

    @abstractmethod
    def kill(self) -> None:
        """End all workers at once, which ends the wait of another thread for one of them."""

    @abstractmethod
    def stop(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        """Let the workers shut down, and kill those that have not ended after ``timeout`` seconds."""

    # -- what groups on one machine have, too ---------------------------------------------------------------------

    def check_owner(self, name: str) -> None:
        """Raise StateError if this process was forked from the one that started the workers."""
        return None

    def preload(self, modules: Sequence[str]) -> None:
        """Import modules where later workers are started from."""
        return None

    def begin_call(self, worker: int) -> None:
        """Forget the interrupt of an earlier call of a worker."""
        return None

    def has_read_weights(self, worker: int) -> bool:
        """Whether a worker has read the weights that it runs its call with."""
        return True

    def batch_memory(self, spec: Composite, *, one_block: bool) -> BatchMemory | None:
        """Return memory in which workers write their batches; None if batches come as messages."""
        return None

    def hand(self, message: Any, fds: Sequence[int]) -> None:
        """Send all workers descriptors of shared memory, with a message for ``link.take``."""
        raise NotSupported(f"{type(self).__name__}: its workers share no memory with this process.")

    def unexpected(self, worker: int) -> NoReturn:
        """Raise the error of a worker that has sent a message although no answer was due, or has ended."""
        raise StateError(f"Worker {worker} sent {self.receive(worker)!r}, and no answer was due.")


class ProcessGroup(Pool, WorkerGroup):
    """Worker processes on this machine. Weights, flags and batches are in memory that all share.

    Args:
        n: the number of workers.
        method: how they are started, see :class:`~steppe.workers.Pool`.
    """

    shares_memory = True

    def __init__(self, n: int, method: str | None) -> None:
        super().__init__(n, f"{_SERVING}:serve", method=method, preload=[_SERVING], label="collector")
        # Shared with the workers once they are connected; from the start, so that stopping finds it.
        self._flags = memoryview(bytearray(8 * PER_WORKER * len(self))).cast("q")

    def connect(self, fields: list[Field], initial: NewWeights) -> None:
        weights = self.weights = SharedWeights(fields)
        if fields and initial is not None:
            weights.fill(initial)
        control = self.share(8 * PER_WORKER * len(self), (len(self), fields), [weights.fd])
        self._flags = control.extra.cast("q")

    def check_owner(self, name: str) -> None:
        if not self.is_ours:
            raise other_process(name, self.owner)

    def begin_call(self, worker: int) -> None:
        self._flags[worker * PER_WORKER + STOP] = self._flags[worker * PER_WORKER + HAS_WEIGHTS] = 0

    def has_read_weights(self, worker: int) -> bool:
        return bool(self._flags[worker * PER_WORKER + HAS_WEIGHTS])

    def interrupt(self, worker: int) -> None:
        self._flags[worker * PER_WORKER + STOP] = 1

    def batch_memory(self, spec: Composite, *, one_block: bool) -> BatchMemory:
        memory = BatchMemory(spec, len(self), one_block=one_block)
        self.hand(("batches", memory.storage.spec, memory.storage.rows), [memory.storage.fd])
        return memory

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        if self.is_ours:
            for worker in range(len(self)):
                self.interrupt(worker)
        super().stop(timeout)
