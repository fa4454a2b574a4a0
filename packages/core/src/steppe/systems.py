"""Differences between operating systems: features of Linux, and their replacements elsewhere.

No other module of steppe tests for the operating system.
"""

from __future__ import annotations

import os
import platform
import select
import socket
import sys
import tempfile
import threading

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
    "SIGNALLED",
    "anonymous_file",
    "lock_file",
    "n_threads",
    "name_process",
    "open_descriptors",
    "render_without_display",
    "usable_cores",
]

#: Whether processes can wake each other through eventfds and epoll (Linux). Pipes and poll serve elsewhere.
HAS_EVENTS: bool = hasattr(select, "epoll") and hasattr(os, "eventfd")
#: The event of a connection whose other end was closed, and of an eventfd or pipe that was written to. Events of
#: an eventfd are edge-triggered: each write is one event, and nothing has to be read back.
HANG_UP: int = select.EPOLLRDHUP if HAS_EVENTS else getattr(select, "POLLHUP", 0)
SIGNALLED: int = select.EPOLLIN | select.EPOLLET if HAS_EVENTS else getattr(select, "POLLIN", 0)
#: Whether processes can fork.
HAS_FORK: bool = hasattr(os, "fork")
#: Whether a process can open the files that another process has open (Linux).
HAS_PROC: bool = os.path.isdir("/proc/self/fd")
#: Whether there can be worker processes: their descriptors are sent over a socket, which Windows cannot do.
HAS_WORKERS: bool = hasattr(socket, "AF_UNIX") and hasattr(socket, "send_fds") and hasattr(select, "poll")
#: Whether a processor sees the writes of another in their order, and a process can yield while it polls for them.
#: Python has no memory fence. Without one, only x86 guarantees that data is visible before the flag that announces it.
ORDERED_MEMORY: bool = platform.machine().lower() in ("x86_64", "amd64", "i686") and hasattr(os, "sched_yield")


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def render_without_display() -> None:
    """Let MuJoCo and pyglet render through EGL if there is no display.

    They read ``MUJOCO_GL`` and ``PYGLET_HEADLESS`` on import, so call this before; variables that are set are kept.
    """
    if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        for name, value in (("MUJOCO_GL", "egl"), ("PYGLET_HEADLESS", "true")):
            os.environ[name] = os.environ.get(name) or value


def anonymous_file(nbytes: int) -> int:
    """Allocate memory with a descriptor and no name, so that it is freed however its processes end."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("steppe", os.MFD_CLOEXEC)
    else:
        # A file that is unlinked while it is open has no name either.
        with tempfile.TemporaryFile(prefix="steppe-") as file:
            fd = os.dup(file.fileno())
    try:
        os.ftruncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def lock_file(fd: int, locked: bool) -> None:
    """Acquire or release the lock of an open file, on systems that have worker processes."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX if locked else fcntl.LOCK_UN)


def n_threads() -> int:
    """Return the number of threads of this process; on Linux, threads of libraries are included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def open_descriptors() -> set[str]:
    """Return the open descriptors of this process and of the listing; empty if the system does not list them."""
    try:
        return set(os.listdir("/dev/fd"))
    except OSError:
        return set()


def name_process(name: str) -> None:
    """Give this process a name of up to 15 characters for ``ps`` and ``top``, on Linux."""
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(name)
    except OSError:
        pass
