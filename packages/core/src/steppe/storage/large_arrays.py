"""Memory of large rollouts, used again when nobody holds their data any more.

A page that is new to a process costs more than what is written into it: the system fills it with zeros first. For a
rollout of images that is most of its time. So the memory of large arrays is kept for the next one of about its size
once the last view of it is gone, and the system may take it back meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref

import numpy as np

__all__ = ["LARGE", "large_array"]

#: Bytes from which an array is worth the trouble; less is kept by the allocator already.
LARGE = 4 << 20

#: How many bytes are kept at most while nobody uses them.
_KEPT = 512 << 20

_idle: list[mmap.mmap] = []
# What Windows lacks; memory there is always new.
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


def large_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array whose contents are arbitrary, as with ``np.empty``.

    Every view of it, a tensor too, keeps its memory; it is used again after the last of them is gone.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE or not _PRIVATE:
        return np.empty(shape, dtype)
    block = _take(nbytes)
    memory = np.frombuffer(block, np.uint8)
    weakref.finalize(memory, _give_back, block).atexit = False
    return memory[:nbytes].view(dtype).reshape(shape)


# No lock: this may be called wherever garbage is collected, so each line leaves the list as others may find it.


def _take(nbytes: int) -> mmap.mmap:
    for block in reversed(tuple(_idle)):
        if nbytes <= len(block) <= nbytes + nbytes // 4:
            try:
                _idle.remove(block)
            except ValueError:  # another thread was faster
                continue
            return block
    block = mmap.mmap(-1, nbytes, flags=_PRIVATE)
    _advise(block, "MADV_HUGEPAGE")
    return block


def _give_back(block: mmap.mmap) -> None:
    if len(block) > _KEPT:
        return
    # The system may take these pages when it is short of memory.
    _advise(block, "MADV_FREE")
    _idle.append(block)
    while sum(map(len, tuple(_idle))) > _KEPT:
        with contextlib.suppress(IndexError):
            del _idle[0]


def _advise(block: mmap.mmap, advice: str) -> None:
    option = getattr(mmap, advice, None)
    if option is not None:
        with contextlib.suppress(OSError):
            block.madvise(option)
