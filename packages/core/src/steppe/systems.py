"""What differs between operating systems: the means of Linux, what takes their place elsewhere, and what is lacking.

Nothing else in steppe asks which system it runs on.
"""

from __future__ import annotations

import os
import platform
import select
import socket
import tempfile

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "HANG_UP",
    "HAS_EVENTS",
    "HAS_FORK",
    "HAS_PROC",
    "HAS_WORKERS",
    "ORDERED_MEMORY",
    "anonymous_file",
    "lock_file",
    "usable_cores",
]

#: Whether processes can wake each other through eventfds and epoll (Linux). Pipes and poll serve elsewhere.
HAS_EVENTS: bool = hasattr(select, "epoll") and hasattr(os, "eventfd")
#: What epoll says of a connection whose other end has closed.
HANG_UP: int = getattr(select, "EPOLLRDHUP", 0)
#: Whether a process can make a copy of itself.
HAS_FORK: bool = hasattr(os, "fork")
#: Whether a process can open what another one has open (Linux).
HAS_PROC: bool = os.path.isdir("/proc/self/fd")
#: Whether worker processes can be had: they are handed descriptors over a socket, which Windows has no means for.
HAS_WORKERS: bool = hasattr(socket, "AF_UNIX") and hasattr(socket, "send_fds") and hasattr(select, "poll")
#: Whether one processor sees another's writes in their order, and a process can give way while it looks for them.
#: Without a fence, which Python has not, only x86 promises that data is seen before the word that announces it.
ORDERED_MEMORY: bool = platform.machine().lower() in ("x86_64", "amd64", "i686") and hasattr(os, "sched_yield")


def usable_cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def anonymous_file(nbytes: int) -> int:
    """Open memory of ``nbytes`` that has a descriptor and no name, so that nothing is left however a process ends."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("steppe", os.MFD_CLOEXEC)
    else:
        # A file that is unlinked while open is as nameless.
        with tempfile.TemporaryFile(prefix="steppe-") as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def lock_file(fd: int, locked: bool) -> None:
    """Take or give back the lock of an open file, against other processes where a system has worker processes."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX if locked else fcntl.LOCK_UN)
