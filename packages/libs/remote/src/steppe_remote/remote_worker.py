"""RemoteWorker: a worker of a collector in a process that another engine has started."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, MutableSequence
from functools import partial
from typing import Any, TypeAlias

import cloudpickle
import torch

from steppe.collectors import PER_WORKER, STOP, Field, WorkerLink
from steppe.workers import Failure, ItemError, apply_context
from steppe_remote.nested_link import NestedLink, WorkersOfNode
from steppe_remote.node_line import LineOfWorker
from steppe_remote.node_memory import NodeMemory
from steppe_remote.packing import Packed, dumps, loads
from steppe_remote.weights import Published, ReceivedWeights

__all__ = ["Message", "RemoteWorker"]

#: ``("done", answer)``, ``("said", message before the answer)`` or ``("failed", Failure)``; values are packed.
Message: TypeAlias = tuple[str, Any]


class RemoteWorker:
    """Collect for a caller in another process, whose engine calls these methods.

    One thread does all the work, so that environments and policies see one thread. ``interrupt`` and ``renew`` return
    at once, also while another call runs. Every other method waits for that thread, and returns a message.

    >>> import cloudpickle
    >>> from steppe_remote import RemoteWorker, loads
    >>> worker = RemoteWorker(0, in_process=True)  # in an actor: without in_process
    >>> task = {"create_env_fn": "gym:CartPole-v1", "policy": None, "frames_per_batch": 20, "interruptor": None}
    >>> kind, report = worker.start(cloudpickle.dumps(task), None, 1)
    >>> kind, loads(report).frames
    ('done', 20)
    >>> _ = worker.shutdown()
    >>> worker.join(5.0)

    Args:
        index: the number of the worker.
        in_process: the worker is a thread of the caller's process, whose settings it does not change.
    """

    def __init__(self, index: int, *, in_process: bool = False) -> None:
        self.index, self._in_process = index, in_process
        self._link: WorkerLink | NestedLink | None = None
        self._weights = ReceivedWeights()
        self._renewed = threading.Condition()
        #: Why newer weights could not be read.
        self._not_renewed: Exception | None = None
        self._flags: MutableSequence[int] | memoryview[int] = [0] * PER_WORKER
        self._stopped = threading.Event()
        #: The line to a caller on this machine, once it is shared.
        self._line: LineOfWorker | None = None
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Message]] | None]
        self._tasks = queue.SimpleQueue()
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

    def share(self, memory: Packed, line: bytes) -> Message:
        """Write batches to memory of the caller from now on, if it is on this machine; the answer says whether it is.

        Args:
            memory: the :class:`NodeMemory`.
            line: the pickled :class:`FarEnd` of a line for :meth:`serve`.
        """

        def take() -> bool:
            shared: NodeMemory = loads(memory)
            fd = shared.open()
            if fd is None:
                return False
            link = self._collector_link
            assert isinstance(link, WorkerLink)  # the batches of a NestedLink have no fixed layout
            try:
                self._line = LineOfWorker(line)
            except OSError:
                os.close(fd)
                return False
            self._flags = link.flags = self._line.flags
            link.take(("batches", shared.spec, shared.rows), [fd])
            return True

        return self._run(take)

    def serve(self) -> Message:
        """Answer the messages on the line until the caller closes it. Calls by the engine wait meanwhile."""

        def answer_all() -> None:
            line = self._line
            assert line is not None
            try:
                while (received := line.receive()) is not None:
                    message, version = received
                    line.send(self._message_of(partial(self._answer, message, version)))
            finally:
                self._line = None
                line.close()

        return self._run(answer_all, queue.SimpleQueue())

    def _answer(self, message: Any, version: int) -> Any:
        """Answer a message when weights of this version have come."""
        with self._renewed:
            self._renewed.wait_for(lambda: self._weights.newest.version >= version or self._not_renewed is not None)
        if self._not_renewed is not None:
            raise ItemError(self.index, "new weights") from self._not_renewed
        return self._collector_link.call(message)

    def renew(self, weights: Published | Exception) -> None:
        """Take over newer weights for the calls that come over the line.

        Args:
            weights: the weights, or why they cannot be read, which the next call raises.
        """
        with self._renewed:
            if isinstance(weights, Exception):
                self._not_renewed = weights
            elif weights.version > self._weights.newest.version:
                self._weights.newest = weights
            self._renewed.notify_all()

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
                self._link.end()

        message = self._run(end)
        self._tasks.put(None)
        return message

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread after :meth:`shutdown`, for ``timeout`` seconds at most."""
        self._thread.join(timeout)

    # -- the worker's end of a WorkerLink -------------------------------------------------------------------------

    def say(self, value: Any) -> None:
        """Send the caller a message within a call."""
        (self._messages.put if self._line is None else self._line.send)(("said", dumps(value)))

    def pause(self, seconds: float) -> bool:
        """Wait; returns True at once if the caller ends the worker."""
        return self._stopped.wait(seconds) if self._line is None else self._line.wait(seconds)

    def new_modules(self) -> list[str]:
        """Return an empty list: nothing is preloaded on other machines."""
        return []

    # -- the thread -----------------------------------------------------------------------------------------------

    @property
    def _collector_link(self) -> WorkerLink | NestedLink:
        assert self._link is not None
        return self._link

    def _run(self, task: Callable[[], Any], messages: queue.SimpleQueue[Message] | None = None) -> Message:
        """Let the thread run a task, and return its first message."""
        messages = self._messages if messages is None else messages
        self._tasks.put((task, messages))
        return messages.get()

    def _work(self) -> None:
        while (given := self._tasks.get()) is not None:
            task, messages = given
            messages.put(self._message_of(task))

    def _message_of(self, task: Callable[[], Any]) -> Message:
        """Run a task, and return its last message."""
        try:
            return "done", dumps(task())
        except BaseException as error:
            return "failed", Failure.of(error, "a call" if self._link is not None else "start")
