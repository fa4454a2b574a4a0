"""What two processes talk through: a connection for messages, a signal to wake each other, and waiting for it.

A wait ends when the signal comes or when the other process is gone, which the kernel tells through the closed
connection: never by a timer.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from steppe.systems import HANG_UP, HAS_EVENTS, ORDERED_MEMORY, usable_cores

__all__ = ["Connection", "Gone", "Signal", "SpinGate", "Waiter", "forget_others"]

_HEADER = struct.Struct("<QI")
_MAX_FDS = 16


class Gone(EOFError):
    """The process at the other end has closed its connection: it has ended."""


class Connection:
    """Pickled messages, and descriptors with them, over a socket.

    Args:
        sock: one end of a ``socketpair``. The connection owns it.

    Attributes:
        broken_off: whether a signal's handler raised in the middle of a message. What is read next would be the rest of
            that message: the connection cannot be used any more.
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
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one), cls(other)

    @classmethod
    def from_fd(cls, fd: int) -> Connection:
        """Take over a descriptor that another process handed to this one."""
        return cls(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=fd))

    def fileno(self) -> int:
        """The descriptor, -1 after ``close``."""
        return self._sock.fileno()

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Send a message, pickled, and duplicates of some descriptors.

        Raises:
            Gone: the other end is closed.
        """
        self.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL), fds)

    def send_bytes(self, payload: bytes, fds: Sequence[int] = ()) -> None:
        """Send a message that is pickled already."""
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
        """Wait for a message; returns it with the descriptors that came along.

        Raises:
            Gone: the other end is closed.
        """
        self.broken_off = True
        header, fds, _, _ = self._recv_header()
        size, n_fds = _HEADER.unpack(header)
        payload = self._recv_exactly(size)
        self.broken_off = False
        if len(fds) != n_fds:
            raise OSError(f"expected {n_fds} descriptors with a message, found {len(fds)}")
        return pickle.loads(payload), fds

    def _recv_header(self) -> tuple[bytes, list[int], int, Any]:
        try:
            data, fds, flags, address = socket.recv_fds(self._sock, _HEADER.size, _MAX_FDS)
        except ConnectionResetError as error:
            raise Gone("the other process has ended") from error
        if not data:
            raise Gone("the other process has ended")
        while len(data) < _HEADER.size:
            data += self._recv_exactly(_HEADER.size - len(data))
        for fd in fds:
            os.set_inheritable(fd, False)
        return data, list(fds), flags, address

    def _recv_exactly(self, size: int) -> bytearray:
        payload = bytearray(size)
        view = memoryview(payload)
        got = 0
        while got < size:
            try:
                n = self._sock.recv_into(view[got:])
            except ConnectionResetError as error:
                raise Gone("the other process has ended") from error
            if n == 0:
                raise Gone("the other process has ended in the middle of a message")
            got += n
        return payload

    def poll(self, timeout: float | None) -> bool:
        """Wait up to ``timeout`` seconds (None: for ever) for a message, or for the other end to close."""
        poller = select.poll()
        poller.register(self._sock, select.POLLIN | select.POLLHUP)
        return bool(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))

    def end(self) -> None:
        """Close the connection at both ends, also where a forked child of this process has a copy of this one."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already, at one end or the other
        self.close()

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


def forget_others(fds: Sequence[int]) -> None:
    """Close the connections that a forked process was born with, except ``fds``.

    As long as it holds them, the processes at their other ends would not see the original end.
    """
    for connection in list(Connection._open):
        if connection.fileno() not in fds:
            connection.close()


class Signal:
    """One process wakes another: an eventfd, or a pipe where there is none.

    ``set`` is remembered until the waiter has seen it.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._counts = read_fd == write_fd

    @classmethod
    def create(cls) -> Signal:
        """Make a signal."""
        if HAS_EVENTS:
            fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            return cls(fd, fd)
        read_fd, write_fd = os.pipe()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)
        return cls(read_fd, write_fd)

    @property
    def fds(self) -> list[int]:
        """The descriptors, to hand to another process and give to :meth:`from_fds` there."""
        return [self.read_fd] if self._counts else [self.read_fd, self.write_fd]

    @classmethod
    def from_fds(cls, fds: Sequence[int]) -> Signal:
        """See the signal of another process."""
        return cls(fds[0], fds[-1])

    @staticmethod
    def n_fds() -> int:
        """How many descriptors a signal has on this system."""
        return 1 if HAS_EVENTS else 2

    def setter(self) -> Callable[[], Any]:
        """Return the fastest callable that wakes the waiter."""
        if self._counts:
            write, fd = os.eventfd_write, self.write_fd
            return lambda: write(fd, 1)

        def put() -> None:
            try:
                os.write(self.write_fd, b"\0")
            except BlockingIOError:
                pass  # a full pipe wakes as well as one more byte

        return put

    def drain(self) -> None:
        """Forget what was set. Not needed with an eventfd, which is waited for by its edges."""
        if not self._counts:
            try:
                while os.read(self.read_fd, 4096):
                    pass
            except BlockingIOError:
                pass

    def close(self) -> None:
        """Close the descriptors."""
        for fd in self.fds:
            os.close(fd)


class Waiter:
    """Waits for one signal and watches connections meanwhile.

    Args:
        signal: what to wait for.
        watched: connections whose end is to be noticed.
        messages: return also when a watched connection has a message.
        others: more signals, any of which ends the wait.
    """

    def __init__(
        self, signal: Signal, watched: Sequence[Connection], *, messages: bool = False, others: Sequence[Signal] = ()
    ) -> None:
        self._signals = {one.read_fd: one for one in (signal, *others)}
        if HAS_EVENTS:
            # Edges: each write to the eventfd is one event, so nothing has to be read back.
            self._poller: Any = select.epoll()
            for fd in self._signals:
                self._poller.register(fd, select.EPOLLIN | select.EPOLLET)
            events = HANG_UP | (select.EPOLLIN if messages else 0)
            self._unit = 1.0
        else:
            self._poller = select.poll()
            for fd in self._signals:
                self._poller.register(fd, select.POLLIN)
            events = select.POLLHUP | (select.POLLIN if messages else 0)
            self._unit = 1000.0
        for connection in watched:
            self._poller.register(connection.fileno(), events)

    def wait(self, timeout: float | None = None) -> list[int]:
        """Sleep until something happens; returns the descriptors of connections with a message or an end.

        Args:
            timeout: seconds to wait at most, or None. The list is empty after that too.
        """
        limit = None if timeout is None else max(0.0, timeout) * self._unit
        found: list[tuple[int, int]] = self._poller.poll(limit)
        fds = []
        for fd, _ in found:
            signal = self._signals.get(fd)
            if signal is None:
                fds.append(fd)
            else:
                signal.drain()
        return fds

    def close(self) -> None:
        """Close the waiter, but neither its signals nor its connections."""
        if hasattr(self._poller, "close"):
            self._poller.close()


class SpinGate:
    """Decides whether to look for an answer a little longer before sleeping.

    To wake a process takes 20 to 60 us, to be seen by one that looks takes 1. But where others use the cores, one that
    looks may lose its own for a turn of the scheduler, milliseconds. So it looks only while that pays: after a look
    that found nothing it sleeps once before it looks again, then twice as often as before, and far more often after a
    look that lost its core.

    Args:
        n_processes: processes that wait for each other, this one included. There may be one more than cores: while one
            computes the others look, and while the others compute it does.
        limit_us: microseconds to look at most.
    """

    def __init__(self, n_processes: int, *, limit_us: float = 150.0) -> None:
        self.enabled = ORDERED_MEMORY and n_processes <= usable_cores() + 1
        self._limit = int(limit_us * 1000)
        self._skip = 0
        self._penalty = 1

    def spin(self, ready: Callable[[], bool]) -> bool:
        """Look for ``ready()`` for a little while; returns whether it came true."""
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
        came = False
        while not came and now < end:
            give_way()
            came = ready()
            now = clock()
        lost = now - start > 2 * self._limit
        if came and not lost:
            self._penalty = max(1, self._penalty // 2)
        else:
            self._skip = self._penalty
            self._penalty = min((16 if lost else 2) * self._penalty, 4096)
        return came
