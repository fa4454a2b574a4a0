"""Memory that a process shares with the workers that it starts: tensors in shared memory, and locks for them.

A pickle says which descriptor of which process the memory has, and the worker opens it. So it is not copied, and needs
no name.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import torch

from steppe.errors import WorkerError
from steppe.systems import HAS_PROC, anonymous_file, lock_file

__all__ = ["SharedFile", "SharedLock", "reduce_shared"]

#: A file that a process has open: process id, descriptor, and device and inode, which identify the file.
Place = tuple[int, int, int, int]


class SharedFile:
    """An anonymous file in memory, new or that of ``fd``. An unpickled copy in a worker has the same file open."""

    def __init__(self, nbytes: int = 0, *, fd: int | None = None) -> None:
        self._open(anonymous_file(nbytes) if fd is None else os.dup(fd))

    def _open(self, fd: int) -> None:
        self.fd = fd

    def __getstate__(self) -> Place:
        return _place(self.fd)

    def __setstate__(self, place: Place) -> None:
        self._open(_opened(place))

    def __copy__(self) -> SharedFile:
        return self

    def __deepcopy__(self, memo: object) -> SharedFile:
        return self

    def __del__(self) -> None:
        if "fd" in self.__dict__:
            os.close(self.fd)


class SharedLock(SharedFile):
    """A lock for memory that several processes write, such as the statistics of a transform: ``with lock: ...``.

    An unpickled copy in a worker is the same lock. If a process ends while it holds the lock, the lock is released. It
    is not reentrant.
    """

    def _open(self, fd: int) -> None:
        self.fd, self._threads = fd, threading.Lock()

    def __enter__(self) -> SharedLock:
        self._threads.acquire()
        lock_file(self.fd, True)
        return self

    def __exit__(self, *exc_info: object) -> None:
        lock_file(self.fd, False)
        self._threads.release()


def reduce_shared(value: object) -> tuple[object, ...] | None:
    """Return the ``__reduce__`` value of a torch storage in shared memory; None for everything else."""
    if type(value) is not torch.storage.TypedStorage or not HAS_PROC:
        return None
    memory = value._untyped_storage
    if memory.device.type != "cpu" or not memory.is_shared():
        return None
    if torch.multiprocessing.get_sharing_strategy() != "file_descriptor":  # type: ignore[no-untyped-call]
        return None
    fd, nbytes = memory._share_fd_cpu_()
    return _storage_at, (_place(fd), nbytes, value.dtype)


def _storage_at(place: Place, nbytes: int, dtype: torch.dtype) -> torch.storage.TypedStorage:
    file = SharedFile.__new__(SharedFile)
    file.__setstate__(place)
    memory = torch.UntypedStorage._new_shared_fd_cpu(file.fd, nbytes)  # type: ignore[attr-defined]  # duplicates it
    storage = torch.storage.TypedStorage
    return storage(wrap_storage=memory, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


def _place(fd: int) -> Place:
    stat = os.fstat(fd)
    return os.getpid(), fd, stat.st_dev, stat.st_ino


def _opened(place: Place) -> int:
    pid, number, *file = place
    with suppress(OSError):
        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        stat = os.fstat(fd)
        if [stat.st_dev, stat.st_ino] == file:
            return fd
        os.close(fd)
    raise WorkerError(
        f"Shared memory of process {pid} is gone, or cannot be opened by this process. Tensors in shared memory and a "
        "SharedLock can be sent to workers as long as their owner keeps them; for files, save a state_dict()."
    )
