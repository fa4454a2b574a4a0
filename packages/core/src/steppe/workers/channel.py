"""Communication between two processes: connections for messages, signals that wake a process, and waiting for both.

A wait ends when the signal is set, or when the other process ends and the kernel closes its connection. No timer is
needed to notice that.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import socket
import struct
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from steppe.systems import HANG_UP, HAS_EVENTS, ORDERED_MEMORY, SIGNALLED, usable_cores

__all__ = ["Connection", "Gone", "Signal", "SpinGate", "Waiter", "forget_others"]

_HEADER = struct.Struct("<QI")
_MAX_FDS = 16
# The bytes that set a signal: an eventfd takes 8.
_ONE = (1).to_bytes(8, sys.byteorder)
_PIPE_SIZE = 65536


class Gone(EOFError):
    """The process at the other end has closed its connection, mostly because it has ended."""


class Connection:
    """Send pickled messages and file descriptors over a socket.

    Args:
        sock: one end of a ``socketpair``. The connection owns it.

    Attributes:
        broken_off: whether a signal handler raised in the middle of a message. The rest of the message would be read
            as the next one, so the connection cannot be used any more.
    """

    _open: ClassVar[weakref.WeakSet[Connection]] = weakref.WeakSet()

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.broken_off = False
        sock.setblocking(True)
        self._open.add(self)

    @classmethod
    def pair(cls) -> tuple[Connection, Connection]:
        """Make two connected ends."""
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(first), cls(second)

    @classmethod
    def from_fd(cls, fd: int) -> Connection:
        """Make a connection of a descriptor that another process has sent."""
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd))

    def fileno(self) -> int:
        """The descriptor; -1 after ``close``."""
        return self._sock.fileno()

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Pickle and send a message, and duplicates of some descriptors.

        Raises:
            Gone: the other end is closed.
        """
        self.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), fds)

    def send_bytes(self, payload: bytes, fds: Sequence[int] = ()) -> None:
        """Send a pickled message."""
        header = _HEADER.pack(len(payload), len(fds))
        self.broken_off = True
        try:
            if fds:
                socket.send_fds(self._sock, [header], list(fds))
            else:
                self._sock.sendall(header)
            self._sock.sendall(payload)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Gone("the other process has ended") from error
        self.broken_off = False

    def recv(self) -> tuple[Any, list[int]]:
        """Wait for a message; returns it and the descriptors that were sent along.

        Raises:
            Gone: the other end is closed.
        """
        payload, fds = self.recv_bytes()
        return pickle.loads(payload), fds

    def recv_bytes(self) -> tuple[bytearray, list[int]]:
        """Wait for a message; returns its pickle and the descriptors."""
        self.broken_off = True
        try:
            start, fds, _, _ = socket.recv_fds(self._sock, _HEADER.size, _MAX_FDS)
            for fd in fds:
                os.set_inheritable(fd, False)
            header = start if len(start) == _HEADER.size else self._recv_rest(start, _HEADER.size)
            size, n_fds = _HEADER.unpack(header)
            payload = self._recv_rest(b"", size)
        except ConnectionResetError as error:
            raise Gone("the other process has ended") from error
        self.broken_off = False
        if len(fds) != n_fds:
            raise OSError(f"expected {n_fds} descriptors with a message, found {len(fds)}")
        return payload, list(fds)

    def _recv_rest(self, start: bytes, size: int) -> bytearray:
        """Return ``size`` bytes that begin with ``start``; the others are received."""
        data, received = bytearray(size), len(start)
        data[:received] = start
        view = memoryview(data)
        while received < size:
            n = self._sock.recv_into(view[received:])
            if n == 0:
                raise Gone("the other process has ended")
            received += n
        return data

    def poll(self, timeout: float | None) -> bool:
        """Wait up to ``timeout`` seconds (None: no limit) for a message, or for the other end to close."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | select.POLLHUP)
        return bool(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def end(self) -> None:
        """Close both ends of the connection, even if a forked child of this process has a copy of this end."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # one of the ends is closed already
        self.close()

    def close(self) -> None:
        """Close this end."""
        self._sock.close()

    def detach(self) -> None:
        """Give the descriptor up without closing it."""
        self._sock.detach()


def forget_others(fds: Sequence[int]) -> None:
    """Close the connections that a forked process has inherited, except ``fds``.

    As long as it keeps copies of them, the processes at the other ends do not notice when the originals are closed.
    """
    for connection in list(Connection._open):
        if connection.fileno() not in fds:
            connection.close()


class Signal:
    """Wake a process: an eventfd, or a pipe on systems without eventfds.

    A signal that was set stays set until a :class:`Waiter` has seen it.

    Args:
        fds: the descriptor to read from, and for a pipe the one to write to. Another process makes the same signal of
            duplicates of them.
    """

    def __init__(self, fds: Sequence[int]) -> None:
        self.fds = list(fds)
        self._write_fd = fds[-1]

    @classmethod
    def create(cls) -> Signal:
        """Make a signal."""
        if HAS_EVENTS:
            return cls([os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)])
        fds = os.pipe()
        for fd in fds:
            os.set_blocking(fd, False)
        return cls(fds)

    def set(self) -> None:
        """Set the signal."""
        try:
            os.write(self._write_fd, _ONE)
        except BlockingIOError:  # the pipe is full, so the signal is set already
            pass

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)


class Waiter:
    """Wait for signals, and notice when connections close.

    Args:
        signals: the signals to wait for.
        watched: connections that end the wait when their other end closes.
        messages: whether a message on a watched connection ends the wait too.
    """

    def __init__(self, signals: Sequence[Signal], watched: Sequence[Connection], *, messages: bool = False) -> None:
        self._signals = {signal.fds[0] for signal in signals}
        self._poller: Any = select.epoll() if HAS_EVENTS else select.poll()
        self._unit = 1.0 if HAS_EVENTS else 1000.0
        for fd in self._signals:
            self._poller.register(fd, SIGNALLED)
        for connection in watched:
            self._poller.register(connection.fileno(), HANG_UP | (select.POLLIN if messages else 0))

    def wait(self, timeout: float | None = None) -> list[int]:
        """Sleep until a signal is set or a connection has an event; returns the descriptors of these connections.

        Args:
            timeout: seconds to wait at most, or None. The list is empty if nothing happened.
        """
        limit = None if timeout is None else max(0.0, timeout) * self._unit
        fds = []
        for fd, _ in self._poller.poll(limit):
            if fd not in self._signals:
                fds.append(fd)
            elif not HAS_EVENTS:  # an eventfd is edge-triggered, and need not be read
                with contextlib.suppress(BlockingIOError):  # another waiter has read it
                    os.read(fd, _PIPE_SIZE)
        return fds

    def close(self) -> None:
        """Close the waiter, but not its signals and connections."""
        if HAS_EVENTS:
            self._poller.close()


class SpinGate:
    """Poll for an answer for a short time before the process sleeps, as long as that is faster.

    Waking a sleeping process takes 20 to 60 us; a polling process sees the answer within 1 us. Two things make polling
    useless, and some of the next waits then sleep at once:

    - The answers take longer than the limit. After the second late answer in a row one wait sleeps, then 3, 7, and so
      on up to 63, so that polling takes less than 1 % of the time. An answer in time ends this at once: the answers
      of environments whose episodes end now and then are late now and then, and a gate that forgets these slowly lets
      most waits sleep.
    - Other programs use the cores, and the polling process has lost its core for a turn of the scheduler, which takes
      milliseconds. Then 16 waits sleep, and four times as many after each further loss, up to 4096.

    Args:
        n_processes: number of processes that wait for each other, this one included. It may exceed the number of cores
            by one, because the caller and its workers hardly compute at the same time.
        limit_us: microseconds to poll at most. The caller of 8 fast environments with transforms around the batch takes
            about 100 us between two steps, and 200 if episodes end.
    """

    def __init__(self, n_processes: int, *, limit_us: float = 300.0) -> None:
        self.enabled = ORDERED_MEMORY and n_processes <= usable_cores() + 1
        self._limit = int(limit_us * 1000)
        self._skip = 0
        self._after_late, self._after_loss = 0, 16

    def spin(self, ready: Callable[[], bool]) -> bool:
        """Poll ``ready()`` for a short time; returns whether it came true."""
        if ready():
            return True
        if not self.enabled:
            return False
        if self._skip:
            self._skip -= 1
            return False
        clock, give_way = time.perf_counter_ns, os.sched_yield
        start = now = clock()
        end = start + self._limit
        answered = False
        while not answered and now < end:
            give_way()
            answered = ready()
            now = clock()
        if now - start > 2 * self._limit:
            self._skip = self._after_loss
            self._after_loss = min(4 * self._after_loss, 4096)
        elif answered:
            self._after_late = 0
            self._after_loss = max(16, self._after_loss // 2)
        else:
            self._skip = self._after_late
            self._after_late = min(2 * self._after_late + 1, 63)
        return answered
