"""Memory that a process shares with the workers that it starts: tensors in shared memory, and a lock beside them.

What travels to a worker is where the memory is; the worker opens it there, so it is never copied and has no name.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch

from steppe.errors import WorkerError
from steppe.systems import HAS_PROC, anonymous_file, lock_file

__all__ = ["SharedLock", "reduced_if_shared"]

Place = tuple[int, int, int, int]


class SharedLock:
    """A lock for what several processes write into, such as the statistics of a transform: ``with lock: ...``.

    It travels to workers with whatever has it as an attribute, and is then the same lock there. A process that ends
    while it has it, for whatever reason, gives it back. The thread that has it cannot take it again.
    """

    def __init__(self) -> None:
        self._open(anonymous_file(1))

    def _open(self, fd: int) -> None:
        self._fd, self._threads = fd, threading.Lock()

    def __enter__(self) -> SharedLock:
        self._threads.acquire()
        lock_file(self._fd, True)
        return self

    def __exit__(self, *exc_info: Any) -> None:
        lock_file(self._fd, False)
        self._threads.release()

    def __getstate__(self) -> Place:
        return _place(self._fd)

    def __setstate__(self, place: Place) -> None:
        self._open(_opened(place))

    def __copy__(self) -> SharedLock:
        return self

    def __deepcopy__(self, memo: Any) -> SharedLock:
        return self

    def __del__(self) -> None:
        if "_fd" in self.__dict__:
            os.close(self._fd)


def reduced_if_shared(value: Any) -> Any:
    """How to pickle the storage of a tensor that is in shared memory; None for everything else."""
    if type(value) is not torch.storage.TypedStorage or not HAS_PROC:
        return None
    memory = value._untyped_storage
    if memory.device.type != "cpu" or not memory.is_shared():
        return None
    strategy = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    if strategy != "file_descriptor":
        return None
    fd, nbytes = memory._share_fd_cpu_()
    return _storage_at, (_place(fd), nbytes, value.dtype)


def _storage_at(place: Place, nbytes: int, dtype: torch.dtype) -> Any:
    fd = _opened(place)
    try:
        memory = torch.UntypedStorage._new_shared_fd_cpu(fd, nbytes)  # type: ignore[attr-defined]
    finally:
        os.close(fd)  # the storage has a duplicate
    storage = torch.storage.TypedStorage
    return storage(wrap_storage=memory, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


def _place(fd: int) -> Place:
    """Where a file is: a process that has it open, its number there, and what tells that it is still the same."""
    found = os.fstat(fd)
    return os.getpid(), fd, found.st_dev, found.st_ino


def _opened(place: Place) -> int:
    pid, number, *file = place
    try:
        fd = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise _gone(pid) from error
    found = os.fstat(fd)
    if [found.st_dev, found.st_ino] != file:
        os.close(fd)
        raise _gone(pid)
    return fd


def _gone(pid: int) -> WorkerError:
    return WorkerError(
        f"Shared memory of process {pid} is no longer there, or cannot be reached from here. Tensors in shared memory "
        "and a SharedLock travel to workers that are started while their owner has them; in files keep a state_dict()."
    )
