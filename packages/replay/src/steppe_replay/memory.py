"""Memory of a storage: arrays of this process, or of a file that several processes map."""

from __future__ import annotations

import json
import math
import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

import numpy as np

from steppe.errors import NotSupported
from steppe.storage import LARGE
from steppe.workers import SharedFile, SharedLock

try:
    import fcntl
except ImportError:  # Windows, where no memory is shared
    pass

__all__ = ["FileMemory", "Memory", "PrivateMemory", "Region"]

#: Bytes in front of the arrays of a file: the words, then the description of the arrays.
_HEADER = 1 << 16
_N_WORDS = 64
#: Words that describe the description: how many groups of arrays it has, and its length in bytes.
_GROUPS, _LENGTH = 62, 63
_PAGE = 4096


class Region(NamedTuple):
    """One array: its key, dtype (of numpy) and shape."""

    key: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes in memory, rounded up to whole pages."""
        return -(-math.prod(self.shape) * np.dtype(self.dtype).itemsize // _PAGE) * _PAGE


class Memory(ABC):
    """Arrays that hold zeros at first, and words that count.

    Attributes:
        words: ``[64]`` int64; the last two belong to the memory.
        lock: for short changes of the words.
        info: what the storage wrote down with its first arrays; empty before.
        arrays: the arrays by key.
    """

    words: np.ndarray
    lock: AbstractContextManager[Any]

    def __init__(self) -> None:
        self.info: dict[str, Any] = {}
        self.arrays: dict[tuple[str, ...], np.ndarray] = {}

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether other processes can map this memory."""

    @abstractmethod
    def add(self, regions: Sequence[Region], info: dict[str, Any]) -> None:
        """Add arrays. Call it under the lock, after ``refresh``."""

    def refresh(self) -> bool:
        """Map arrays that another process has added; return whether there are any."""
        return False


class PrivateMemory(Memory):
    """Memory of this process."""

    def __init__(self) -> None:
        super().__init__()
        self.words = np.zeros(_N_WORDS, np.int64)
        self.lock = threading.Lock()

    @property
    def is_shared(self) -> bool:
        return False

    def add(self, regions: Sequence[Region], info: dict[str, Any]) -> None:
        self.info = info
        for region in regions:
            self.arrays[region.key] = _zeros(region)


def _zeros(region: Region) -> np.ndarray:
    """Return zeros in large pages, with which reading rows at random takes half the time."""
    if region.nbytes < LARGE or not hasattr(mmap, "MAP_PRIVATE"):
        return np.zeros(region.shape, region.dtype)
    mapping = mmap.mmap(-1, region.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _use_large_pages(mapping)
    return np.frombuffer(mapping, region.dtype, math.prod(region.shape)).reshape(region.shape)


def _use_large_pages(mapping: mmap.mmap) -> None:
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)


class _TryLock(SharedLock):
    """A lock that can be left alone if somebody holds it."""

    def try_acquire(self) -> bool:
        """Acquire the lock if nobody holds it; return whether it is acquired."""
        if not self._threads.acquire(blocking=False):
            return False
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._threads.release()
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        self.__exit__()


class FileMemory(Memory):
    """Memory of a file, which grows with its arrays and needs room only for pages that were written.

    A pickle of it opens the same file in a worker.

    Args:
        path: the file, which is created if it does not exist; None: an anonymous one in memory.
    """

    lock: _TryLock

    def __init__(self, path: str | None = None) -> None:
        super().__init__()
        self.path = path
        self._shared = SharedFile(_HEADER) if path is None else None
        self.lock = _TryLock()
        self._open()

    def _open(self) -> None:
        self._groups: list[mmap.mmap] = []
        self._end = _HEADER
        fd = self._fd()
        try:
            if os.fstat(fd).st_size < _HEADER:
                os.ftruncate(fd, _HEADER)
            self._header = mmap.mmap(fd, _HEADER)
        finally:
            self._release(fd)
        self.words = np.frombuffer(self._header, np.int64, _N_WORDS)
        self.refresh()

    def _fd(self) -> int:
        if self._shared is not None:
            return self._shared.fd
        assert self.path is not None
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _release(self, fd: int) -> None:
        if self._shared is None:
            os.close(fd)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_shared": self._shared, "lock": self.lock}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.info, self.arrays = {}, {}
        self.__dict__.update(state)
        self._open()

    @property
    def is_shared(self) -> bool:
        return True

    def add(self, regions: Sequence[Region], info: dict[str, Any]) -> None:
        described = self._description()
        groups = [*described.get("groups", []), [tuple(region) for region in regions]]
        text = json.dumps({"info": info, "groups": groups}).encode()
        room = _HEADER - 8 * _N_WORDS
        if len(text) > room:
            raise NotSupported(
                f"The names of the entries of this data take {len(text)} bytes, and a shared or memory-mapped storage "
                f"has room for {room}: store fewer entries."
            )
        fd = self._fd()
        try:
            os.ftruncate(fd, self._end + sum(region.nbytes for region in regions))
        finally:
            self._release(fd)
        start = 8 * _N_WORDS
        # A process that is killed before the last line leaves the former description: its length comes before it.
        self._header[start : start + len(text)] = text
        self.words[_LENGTH] = len(text)
        self.words[_GROUPS] = len(groups)
        self.refresh()

    def _description(self) -> dict[str, Any]:
        length = int(self.words[_LENGTH])
        if not length or not self.words[_GROUPS]:
            return {}
        start = 8 * _N_WORDS
        description: dict[str, Any] = json.loads(self._header[start : start + length])
        return description

    def refresh(self) -> bool:
        if int(self.words[_GROUPS]) == len(self._groups):
            return False
        description = self._description()
        self.info = description["info"]
        for group in description["groups"][len(self._groups) :]:
            regions = [Region(tuple(key), dtype, tuple(shape)) for key, dtype, shape in group]
            nbytes = sum(region.nbytes for region in regions)
            fd = self._fd()
            try:
                mapping = mmap.mmap(fd, nbytes, offset=self._end)
            finally:
                self._release(fd)
            _use_large_pages(mapping)
            offset = 0
            for region in regions:
                array = np.frombuffer(mapping, region.dtype, math.prod(region.shape), offset)
                self.arrays[region.key] = array.reshape(region.shape)
                offset += region.nbytes
            self._groups.append(mapping)
            self._end += nbytes
        return True
