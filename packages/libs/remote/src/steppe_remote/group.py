"""RemoteGroup: the workers of a collector in processes that another engine starts and calls."""

from __future__ import annotations

import math
import select
import time
import warnings
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors import BatchMemory, Field, NewWeights, WorkerGroup
from steppe.errors import WorkerError
from steppe.specs import Composite
from steppe.systems import HAS_PROC
from steppe.workers import SHUTDOWN_TIMEOUT, SharedFile, gather_context, pickled
from steppe_remote.node_line import Line
from steppe_remote.node_memory import NodeMemory
from steppe_remote.packing import Packed, dumps, loads
from steppe_remote.remote_worker import Message
from steppe_remote.weights import RemoteWeights

__all__ = ["RemoteGroup", "WorkerGone"]

#: Trajectories that a worker may begin before it is replaced; the replacement numbers its own behind them.
_TRAJECTORIES = 1 << 32

#: Replacements of a worker that may end one after another before its call is given up.
_ATTEMPTS = 5


#: Seconds between two questions to the engine whether a call has ended, unless the caller waits for it. Ray takes 50 to
#: 250 us for an answer, and a batch needs several: its collector looks before it waits, and again for each worker.
_LOOK = 0.0005

#: Seconds between two questions whether the worker at the other end of a line has ended: its end mostly closes the
#: line, unless its environments have processes of their own, which keep it open.
_ALIVE = 1.0

#: Seconds to wait for lines before the engine is asked, where some workers have lines and others do not.
_TURN = 0.002


#: What an engine returns for a call: a future, or a reference to the result.
Handle = TypeVar("Handle")


class WorkerGone(Exception):
    """A worker has ended without an answer.

    >>> from steppe_remote import ThreadGroup, WorkerGone
    >>> print(ThreadGroup(2).worker_error(1, WorkerGone("its machine was switched off")))
    Worker 1 ended unexpectedly: its machine was switched off

    Args:
        why: what the engine knows of it.
    """


class RemoteGroup(WorkerGroup, Generic[Handle]):
    """Workers that an engine starts in other processes, and in which it calls the methods of a ``RemoteWorker``.

    An engine defines :meth:`launch`, :meth:`submit`, :meth:`wait`, :meth:`result`, :meth:`publish` and :meth:`end`.

    >>> from steppe_remote import RemoteGroup
    >>> sorted(RemoteGroup.__abstractmethods__)  # what a group of actors of an engine defines
    ['end', 'launch', 'publish', 'result', 'submit', 'wait']

    Args:
        n: the number of workers.
        restart: replace a worker that has ended. The new one has the newest weights, and a seed derived from that of
            the old one and the number of its replacements, so that it does not repeat the frames of the old one. It
            collects the batch that was lost again.
        replace_timeout: seconds that this may take; None: no limit.

    Attributes:
        lost_batches: how many batches were lost with workers that were replaced.
        shares_batches: workers on the machine of the caller write their batches to its memory, and exchange messages
            with it over a :class:`Line`. The engine carries those of others, and all weights.
        joins_batches: the batches of all workers are delivered as one. Large ones that messages carry are then copied
            to memory of the caller as they come, which is used again and thus faster to write than new memory.
    """

    weights: RemoteWeights
    label = "collector"
    shares_batches = HAS_PROC
    joins_batches = False

    def __init__(self, n: int, *, restart: bool = False, replace_timeout: float | None = None) -> None:
        self.n, self._restart, self._replace_timeout = n, restart, replace_timeout
        self.in_step, self.lost_batches = True, 0
        #: What the message of each worker is waited for with: a handle of the engine, or a line.
        self._handles: dict[int, Handle | Line] = {}
        self._lines: dict[int, Line] = {}
        #: Handles whose call had ended when the engine was last asked, and when that was.
        self._ended: set[Handle | Line] = set()
        self._looked = 0.0
        #: The call of each worker that was not answered yet.
        self._pending: dict[int, Any] = {}
        self._sent = [0] * n
        self._replaced = [0] * n
        self._tasks: list[bytes] = []
        self._context: Any = None
        self._num_threads = 1
        self._memory: BatchMemory | None = None
        #: The file of the memory, and what workers open it with.
        self._shared: tuple[SharedFile, Packed] | None = None
        #: The newest message of each kind that changes how a worker works: its replacement gets them too.
        self._settings: list[dict[Any, Any]] = [{} for _ in range(n)]

    def __len__(self) -> int:
        return self.n

    # -- to be defined by an engine -------------------------------------------------------------------------------

    @abstractmethod
    def launch(self, worker: int) -> None:
        """Start the process of a worker, which makes a ``RemoteWorker(worker)``, or replace one that has ended."""

    @abstractmethod
    def submit(self, worker: int, method: str, *args: object) -> Handle:
        """Begin a call of a method of the RemoteWorker; returns a handle.

        ``interrupt`` and ``renew``, whose results nobody waits for, overtake a running call.
        """

    @abstractmethod
    def wait(self, handles: Collection[Handle], timeout: float | None) -> Iterable[Handle]:
        """Wait until one of some calls has ended, for ``timeout`` seconds at most; return those that have ended."""

    @abstractmethod
    def result(self, worker: int, handle: Handle) -> Any:
        """Wait for the end of a call, and return its result.

        Raises:
            WorkerGone: the worker has ended.
        """

    @abstractmethod
    def publish(self, values: dict[str, torch.Tensor]) -> Any:
        """Store weights where all workers find them; a worker gets the result, as a dict of tensors, as ``values``."""

    @abstractmethod
    def end(self, worker: int, timeout: float) -> None:
        """Release the process of a worker: let it end within ``timeout`` seconds, or kill it."""

    # -- start ----------------------------------------------------------------------------------------------------

    def begin(self, payloads: Sequence[Any], *, num_threads: int = 1) -> None:
        self._tasks = [pickled(payload) for payload in payloads]
        self._context, self._num_threads = gather_context(), num_threads
        self.launch_all()
        for worker in range(self.n):
            self._handles[worker] = self._submit_start(worker)

    def launch_all(self) -> None:
        """Start the processes of all workers."""
        for worker in range(self.n):
            self.launch(worker)

    def _submit_start(self, worker: int) -> Handle:
        return self.submit(worker, "start", self._tasks[worker], self._context, self._num_threads)

    def connect(self, fields: list[Field], initial: NewWeights) -> None:
        self.weights = RemoteWeights(fields, initial, self.publish)
        handles = {worker: self._submit_connect(worker) for worker in range(self.n)}
        for worker, handle in handles.items():
            self._answer(worker, self._result(worker, handle))

    def _submit_connect(self, worker: int) -> Handle:
        self._sent[worker] = self.weights.version
        return self.submit(worker, "connect", self.n, self.weights.fields, self.weights.published)

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, worker: int, message: Any) -> None:
        self._pending[worker] = message
        self._handles[worker] = self._submit_call(worker, message)

    def _submit_call(self, worker: int, message: Any) -> Handle | Line:
        self._note(worker, message)
        newer = self.weights.version != self._sent[worker]
        self._sent[worker] = self.weights.version
        line = self._lines.get(worker)
        if line is None:
            return self.submit(worker, "call", dumps(message), self.weights.published if newer else None)
        if newer:
            self.submit(worker, "renew", self.weights.published)
        line.call(message, self.weights.version)
        return line

    def _note(self, worker: int, message: Any) -> None:
        """Keep a message that a replacement of the worker needs too."""
        if message[0] in ("deliver_to", "number") or message[:2] == ("collector", "set_seed"):
            self._settings[worker][message[: 1 if message[0] != "collector" else 2]] = message

    def has_message(self, worker: int) -> bool:
        handle = self._handles.get(worker)
        if handle is None:
            return False
        if isinstance(handle, Line):
            return handle.poll() or handle in self._ended
        if handle not in self._ended and time.monotonic() - self._looked > _LOOK:
            self.wait_any(0.0)
        return handle in self._ended

    def receive(self, worker: int) -> Any:
        handle = self._handles.pop(worker)
        self._ended.discard(handle)  # a line is waited for again and again
        try:
            message = self._message(worker, handle)
        except WorkerGone as gone:
            message = self._after_end(worker, gone)
        if message[0] == "said":
            line = self._lines.get(worker)
            self._handles[worker] = self.submit(worker, "more") if line is None else line
            return self._answer(worker, message)
        call = self._pending.pop(worker, None)
        answer = self._answer(worker, message)
        if self._memory is None or not self.joins_batches or call is None or call[0] != "batch":
            return answer
        return self._stored(worker, call[2], *answer)

    def batch_memory(self, spec: Composite, *, one_block: bool) -> BatchMemory | None:
        memory = BatchMemory(spec, self.n, one_block=one_block)
        if self.shares_batches:
            file = SharedFile(fd=memory.storage.fd)
            self._shared = file, dumps(NodeMemory.of(memory, file))
        sharing = [self._share(worker) for worker in range(self.n)]
        # Of a small batch in a message, memory that is used again would be copied once more for the caller.
        joins = self.joins_batches and self.n > 1 and (one_block or memory.storage.rows[0] > 1)
        self._memory = memory if joins or any(sharing) else None
        return self._memory

    def _share(self, worker: int) -> bool:
        """Let a worker write its batches to the memory, if it is on this machine."""
        if self._shared is None:
            return False
        line = Line()
        handle = self.submit(worker, "share", self._shared[1], line.far_end())
        return self._begin_line(worker, line, self._answer(worker, self._result(worker, handle)))

    def _begin_line(self, worker: int, line: Line, is_open: bool) -> bool:
        """Send the messages to a worker over a line from now on, if the worker has opened it."""
        if not is_open:
            line.close()
            return False
        line.begin(self.submit(worker, "serve"))
        self._lines[worker] = line
        return True

    def _stored(
        self, worker: int, block: int, batch: TensorDictBase | None, steps: int
    ) -> tuple[TensorDictBase | None, int]:
        """Copy a batch to its place in the memory of all; one with other entries stays as it is."""
        assert self._memory is not None
        targets = {key: tensor[block, worker] for key, tensor in self._memory.storage.tensors.items()}
        values = {} if batch is None else {key: batch.get(key, None) for key in targets}
        if any(value is None or value.shape != targets[key].shape for key, value in values.items()):
            return batch, steps
        for key, value in values.items():
            targets[key].copy_(value)
        return None, steps

    def _answer(self, worker: int, message: Message) -> Any:
        kind, value = message
        if kind == "failed":
            raise value.error(self.label, worker)
        return loads(value)

    def _message(self, worker: int, handle: Handle | Line) -> Message:
        """Wait for the message of a call.

        Raises:
            WorkerGone: the worker has ended.
        """
        message: Message
        if not isinstance(handle, Line):
            message = self.result(worker, handle)
            return message
        self._wait([handle], None)
        if handle.poll():
            try:
                message = handle.receive()
                return message
            except (EOFError, OSError):
                pass
        self._close_line(worker)
        self.result(worker, handle.serving)  # raises how the worker has ended
        raise WorkerGone("it has closed its line")

    def _close_line(self, worker: int) -> None:
        line = self._lines.pop(worker, None)
        if line is not None:
            line.close()

    def _result(self, worker: int, handle: Handle) -> Message:
        try:
            message: Message = self.result(worker, handle)
        except WorkerGone as gone:
            raise self.worker_error(worker, gone) from None
        return message

    def ask(self, messages: Mapping[int, Any]) -> dict[int, Any]:
        self.in_step = False
        answers: dict[int, Any] = {}
        failure: WorkerError | None = None
        ended = False
        for worker, message in messages.items():
            self.call(worker, message)
        for worker in messages:
            try:
                answers[worker] = self.receive(worker)
            except WorkerError as error:
                failure, ended = failure or error, ended or not error.remote_traceback
        self.in_step = not ended
        if failure is not None:
            raise failure
        return answers

    def wait_any(self, timeout: float | None = None) -> list[int]:
        ready = self._ended = self._wait(list(self._handles.values()), timeout)
        self._looked = time.monotonic()
        return [worker for worker, handle in self._handles.items() if handle in ready]

    def _wait(self, handles: Collection[Handle | Line], timeout: float | None) -> set[Handle | Line]:
        """Wait until a call has ended, or a message has come over a line; return their handles and lines."""
        lines = {handle.fileno(): handle for handle in handles if isinstance(handle, Line)}
        others = [handle for handle in handles if not isinstance(handle, Line)]
        if not lines:
            return set(self.wait(others, timeout))
        poll = select.poll()  # multiprocessing.connection.wait takes 20 us longer
        for line in lines:
            poll.register(line, select.POLLIN | select.POLLHUP)
        serving: dict[Handle, Handle | Line] = {line.serving: line for line in lines.values()}
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            remaining = max(end - time.monotonic(), 0.0)
            come = poll.poll(math.ceil(1e3 * min(remaining, _TURN if others else _ALIVE)))
            ready: set[Handle | Line] = {lines[fd] for fd, _ in come}
            if others or not ready:
                ended = self.wait([*others, *serving], 0.0)
                ready |= {serving.get(handle, handle) for handle in ended}
            if ready or remaining == 0.0:
                return ready

    def interrupt(self, worker: int) -> None:
        line = self._lines.get(worker)
        if line is None:
            self.submit(worker, "interrupt")
        else:
            line.interrupt()

    # -- failures -------------------------------------------------------------------------------------------------

    def worker_error(self, worker: int, gone: WorkerGone) -> WorkerError:
        """Return the caller's error after the end of a worker."""
        return WorkerError(f"Worker {worker} ended unexpectedly: {gone}", worker=worker)

    def _after_end(self, worker: int, gone: WorkerGone) -> Message:
        """Replace a worker that has ended in a call, and return the answer of the new one; or raise."""
        message = self._pending.get(worker)
        self._close_line(worker)
        if not self._restart or message is None:
            raise self.worker_error(worker, gone) from None
        is_batch = message[0] == "batch"
        self.lost_batches += is_batch
        lost = "the batch that it collected is lost, and collected again" if is_batch else "its call is repeated"
        warnings.warn(f"Worker {worker} ended unexpectedly: {gone}. It is replaced; {lost}.", stacklevel=2)
        end = math.inf if self._replace_timeout is None else time.monotonic() + self._replace_timeout
        for _ in range(_ATTEMPTS):
            self._replaced[worker] += 1
            try:
                self.launch(worker)
                return self._repeated(worker, message, end)
            except WorkerGone as again:
                gone = again  # whatever ended the first one may have ended the replacement too
            if time.monotonic() >= end:
                break
        raise self.worker_error(worker, gone) from None

    def _repeated(self, worker: int, message: Any, end: float) -> Message:
        """Prepare a replacement, and let it repeat a call; returns the answer.

        Args:
            worker: the worker.
            message: the message of the call.
            end: when the replacement must have answered.

        Raises:
            WorkerGone: it has ended too, or has not answered in time.
        """

        def answered(handle: Handle | Line) -> Message:
            remaining = None if end == math.inf else max(end - time.monotonic(), 0.0)
            if not self._wait([handle], remaining):
                raise WorkerGone(f"its replacement did not answer within batch_timeout={self._replace_timeout:g} s")
            return self._message(worker, handle)

        self._answer(worker, answered(self._submit_start(worker)))
        self._answer(worker, answered(self._submit_connect(worker)))
        for setting in self._settings_of_replacement(worker):
            self._answer(worker, answered(self.submit(worker, "call", dumps(setting), None)))
        if self._shared is not None:
            line = Line()
            shared = answered(self.submit(worker, "share", self._shared[1], line.far_end()))
            self._begin_line(worker, line, self._answer(worker, shared))
        return answered(self._submit_call(worker, message))

    def _settings_of_replacement(self, worker: int) -> list[Any]:
        count = self._replaced[worker]
        settings = dict(self._settings[worker])
        _, first, distance = settings.get(("number",), ("number", worker, self.n))
        settings["number",] = ("number", first + distance * count * _TRAJECTORIES, distance)
        seeded = settings.get(("collector", "set_seed"))
        if seeded is not None and seeded[2][0] is not None:
            seed, *others = seeded[2]
            derived = int(np.random.SeedSequence([seed, count]).generate_state(1)[0])
            settings["collector", "set_seed"] = (*seeded[:2], (derived, *others), seeded[3])
        return list(settings.values())

    # -- the end --------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        for worker in range(self.n):
            self.end(worker, 0.0)

    def stop(self, timeout: float = SHUTDOWN_TIMEOUT) -> None:
        end = time.monotonic() + timeout
        self._handles.clear()
        self._pending.clear()
        handles = []
        for worker in range(len(self._tasks)):
            try:
                self.interrupt(worker)
                self._close_line(worker)
                handles.append(self.submit(worker, "shutdown"))
            except Exception:
                continue  # it has ended, or was never started
        while handles and (remaining := end - time.monotonic()) > 0.0:
            ready = list(self.wait(handles, remaining))
            handles = [handle for handle in handles if handle not in ready]
        for worker in range(len(self._tasks)):
            self.end(worker, max(end - time.monotonic(), 0.0))
        self._tasks = []
