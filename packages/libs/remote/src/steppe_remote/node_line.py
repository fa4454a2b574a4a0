"""Line: messages between a caller and a worker on the same machine, which no engine carries.

A call by an engine passes through several threads and processes, which takes longer than a small batch. A line is two
pipes, whose descriptors the worker opens as it opens the memory for batches.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from steppe.collectors import PER_WORKER, STOP
from steppe.workers import SharedFile
from steppe_remote.packing import dumps, loads

__all__ = ["FarEnd", "Line", "LineOfWorker"]


class FarEnd(NamedTuple):
    """What a worker opens a line with.

    Attributes:
        pid: the process of the caller.
        calls, answers: descriptors in that process, one to read from, and one to write to.
        flags: the file of the flags, pickled as long as its owner keeps it.
    """

    pid: int
    calls: int
    answers: int
    flags: SharedFile


class Line:
    """The caller's end.

    Attributes:
        serving: the engine's handle of the call that serves the line, after :meth:`begin`; it ends with the worker.
    """

    def __init__(self) -> None:
        self._far_calls, self._calls = Pipe(duplex=False)
        self._answers, self._far_answers = Pipe(duplex=False)
        self._file = SharedFile(8 * PER_WORKER)
        self._flags = _mapped(self._file)
        self._poll = select.poll()
        self._poll.register(self._answers.fileno(), select.POLLIN | select.POLLHUP)
        self.serving: Any = None

    def far_end(self) -> bytes:
        """Return the pickled :class:`FarEnd`, which can be opened until :meth:`begin`."""
        calls, answers = self._far_calls.fileno(), self._far_answers.fileno()
        return pickle.dumps(FarEnd(os.getpid(), calls, answers, self._file))

    def begin(self, serving: Any) -> None:
        """Close the ends that the worker has opened, so that its end is noticed."""
        self._far_calls.close()
        self._far_answers.close()
        self.serving = serving

    def fileno(self) -> int:
        """The descriptor that is ready when a message has come, or when the worker has ended."""
        return self._answers.fileno()

    def call(self, message: Any, version: int) -> None:
        """Send a message, to be answered with this version of the weights, or a newer one."""
        self._flags[STOP] = 0
        with suppress(OSError):  # the worker has ended, which its caller notices when it waits for the answer
            self._calls.send((dumps(message), version))

    def interrupt(self) -> None:
        """Let the running call end at its next step."""
        self._flags[STOP] = 1

    def poll(self) -> bool:
        """Whether a message has come, or the worker has ended."""
        return bool(self._poll.poll(0))

    def receive(self) -> Any:
        """Wait for the next message, and return it.

        Raises:
            EOFError, OSError: the worker has ended.
        """
        return self._answers.recv()

    def close(self) -> None:
        """Close the line, which ends the call that serves it."""
        for end in (self._calls, self._answers, self._far_calls, self._far_answers):
            end.close()


class LineOfWorker:
    """The worker's end.

    Args:
        far_end: the pickled :class:`FarEnd`.

    Attributes:
        flags: of the worker, which its caller sets.

    Raises:
        OSError: this process may not open the descriptors.
        WorkerError: it may not open the file.
    """

    def __init__(self, far_end: bytes) -> None:
        pid, calls, answers, file = pickle.loads(far_end)
        self.flags = _mapped(file)
        self._calls = Connection(os.open(f"/proc/{pid}/fd/{calls}", os.O_RDONLY | os.O_CLOEXEC), writable=False)
        self._answers = Connection(os.open(f"/proc/{pid}/fd/{answers}", os.O_WRONLY | os.O_CLOEXEC), readable=False)

    def receive(self) -> tuple[Any, int] | None:
        """Wait for a message, and return it with the version of the weights that it needs; None at the end."""
        try:
            packed, version = self._calls.recv()
        except (EOFError, OSError):
            return None
        return loads(packed), version

    def send(self, message: Any) -> None:
        """Send a message; one to a caller that has ended is lost."""
        with suppress(OSError):
            self._answers.send(message)

    def wait(self, seconds: float) -> bool:
        """Wait; returns True at once if the caller sends something or ends."""
        return self._calls.poll(seconds)

    def close(self) -> None:
        """Close the line."""
        self._calls.close()
        self._answers.close()


def _mapped(file: SharedFile) -> memoryview[int]:
    return memoryview(mmap.mmap(file.fd, 8 * PER_WORKER)).cast("q")
