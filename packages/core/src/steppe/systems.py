"""What differs between operating systems: the means of Linux, what takes their place elsewhere, and what is lacking.

Nothing else in steppe asks which system it runs on.
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


def render_without_display() -> None:
    """Have MuJoCo render through EGL where there is no display, unless ``MUJOCO_GL`` says how.

    MuJoCo reads the variable when it is imported, so call this before the import.
    """
    if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or "egl"


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


def n_threads() -> int:
    """How many threads this process has, those of libraries too where the system tells of them."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def open_descriptors() -> set[int]:
    """The descriptors that this process has open; empty where the system does not tell of them."""
    try:
        found = {int(name) for name in os.listdir("/dev/fd")}
    except OSError:
        return set()
    return {fd for fd in found if _is_open(fd)}  # the one that listed them is closed again


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def name_process(name: str) -> None:
    """Give this process a name of up to 15 characters, for ``ps`` and ``top``, where the system has such names."""
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(name)
    except OSError:
        pass
