"""RemoteWorker: a worker of a collector in a process that another engine has started."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import cloudpickle
import torch

from steppe.collectors import PER_WORKER, STOP, Field, WorkerLink
from steppe.workers import Failure, apply_context
from steppe_remote.nested_link import NestedLink, WorkersOfNode
from steppe_remote.node_memory import NodeMemory
from steppe_remote.packing import Packed, dumps, loads
from steppe_remote.weights import Published, ReceivedWeights

__all__ = ["Message", "RemoteWorker"]

#: ``("done", answer)``, ``("said", message before the answer)`` or ``("failed", Failure)``; values are packed.
Message: TypeAlias = tuple[str, Any]


class RemoteWorker:
    """Collect for a caller in another process, whose engine calls these methods.

    One thread does all the work, so that environments and policies see one thread, and ``interrupt`` reaches a call
    that runs. Every other method waits for that thread, and returns a message.

    Args:
        index: the number of the worker.
        in_process: the worker is a thread of the caller's process, whose settings it does not change.
    """

    def __init__(self, index: int, *, in_process: bool = False) -> None:
        self.index, self._in_process = index, in_process
        self._link: WorkerLink | NestedLink | None = None
        self._weights = ReceivedWeights()
        self._flags = [0] * PER_WORKER
        self._stopped = threading.Event()
        self._tasks: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="steppe-worker", daemon=True)
        self._thread.start()

    # -- called by the engine -------------------------------------------------------------------------------------

    def start(self, task: bytes, context: Any, num_threads: int) -> Message:
        """Make the collector of this worker; the answer is its report.

        Args:
            task: the pickled arguments of the collector.
            context: the settings of the caller's process.
            num_threads: number of threads of torch.
        """

        def begin() -> Any:
            if not self._in_process:
                apply_context(context, worker=self.index)
                torch.set_num_threads(num_threads)
            arguments = cloudpickle.loads(task)
            nested = isinstance(arguments["create_env_fn"], WorkersOfNode)
            self._link = NestedLink(self, arguments) if nested else WorkerLink(self, arguments)
            # A batch is packed, and leaves the process, before the next one overwrites its memory.
            self._link.copies_batches = self._in_process
            return self._link.report()

        return self._run(begin)

    def connect(self, n_workers: int, fields: list[Field], weights: Published) -> Message:
        """Give the worker its weights and its number among others."""
        self._weights.newest = weights

        def connect() -> None:
            self._collector_link.connect(n_workers, self._weights, self._flags)

        return self._run(connect)

    def share(self, memory: Packed) -> Message:
        """Write batches to memory of the caller from now on, if it is on this machine; the answer says whether it is.

        Args:
            memory: the :class:`NodeMemory`.
        """

        def take() -> bool:
            shared: NodeMemory = loads(memory)
            fd = shared.open()
            if fd is not None:
                link = self._collector_link
                assert isinstance(link, WorkerLink)  # the batches of a NestedLink have no fixed layout
                link.take(("batches", shared.spec, shared.rows), [fd])
            return fd is not None

        return self._run(take)

    def call(self, message: Packed, weights: Published | None) -> Message:
        """Answer a message of the caller.

        Args:
            message: the message.
            weights: the newest weights, if the worker has older ones.
        """
        self._flags[STOP] = 0
        if weights is not None:
            self._weights.newest = weights
        return self._run(lambda: self._collector_link.call(loads(message)))

    def more(self) -> Message:
        """Return the next message of a call, after one that was not the answer."""
        return self._messages.get()

    def interrupt(self) -> None:
        """Let the running call end at its next step."""
        self._flags[STOP] = 1

    def shutdown(self) -> Message:
        """Close the collector; no method may be called afterwards."""
        self._flags[STOP] = 1
        self._stopped.set()

        def end() -> None:
            if self._link is not None:
                self._link.collector.shutdown(raise_on_error=False)

        message = self._run(end)
        self._tasks.put(None)
        return message

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread after :meth:`shutdown`, for ``timeout`` seconds at most."""
        self._thread.join(timeout)

    # -- the worker's end of a WorkerLink -------------------------------------------------------------------------

    def say(self, value: Any) -> None:
        """Send the caller a message within a call."""
        self._messages.put(("said", dumps(value)))

    def pause(self, seconds: float) -> bool:
        """Wait; returns True at once if the caller ends the worker."""
        return self._stopped.wait(seconds)

    def new_modules(self) -> list[str]:
        """Return an empty list: nothing is preloaded on other machines."""
        return []

    # -- the thread -----------------------------------------------------------------------------------------------

    @property
    def _collector_link(self) -> WorkerLink | NestedLink:
        assert self._link is not None
        return self._link

    def _run(self, task: Callable[[], Any]) -> Message:
        """Let the thread run a task, and return its first message."""
        self._tasks.put(task)
        return self._messages.get()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                message: Message = ("done", dumps(task()))
            except BaseException as error:
                message = ("failed", Failure.of(error, "a call" if self._link is not None else "start"))
            self._messages.put(message)
