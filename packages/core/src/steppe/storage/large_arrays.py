"""large_array, large_tensor, large_clone: large arrays, tensors and copies that reuse the memory of earlier ones.

The operating system fills new pages with zeros. That takes longer than writing data to them, and most of the time of a
rollout of images. So when the last view of a large array is gone, its memory is kept for the next array of similar
size. The system may reclaim kept memory when it runs short.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import weakref

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.specs import torch_to_numpy_dtype_dict

__all__ = ["LARGE", "large_array", "large_clone", "large_tensor"]

#: Smallest size in bytes. The allocator itself reuses the memory of smaller arrays.
LARGE = 4 << 20

#: Largest number of unused bytes that are kept.
_KEPT = 512 << 20

#: Unused bytes that the system may not reclaim: giving them back takes a tenth of the time of a copy to them.
_AT_HAND = 64 << 20

_idle: list[mmap.mmap] = []
# Windows has no such flags, so memory is not reused there.
_PRIVATE = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)


def large_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array, like ``np.empty``.

    Every view keeps its memory, as an array or a tensor; it is reused after the last view is gone.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE or not _PRIVATE:
        return np.empty(shape, dtype)
    block = _take(nbytes)
    memory = np.frombuffer(block, np.uint8)
    weakref.finalize(memory, _give_back, block).atexit = False
    return memory[:nbytes].view(dtype).reshape(shape)


def large_tensor(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor | None:
    """Return an uninitialized tensor of memory from ``large_array``; None if it would not be large, or not on the host.

    Args:
        shape: its shape.
        like: a tensor of its dtype and device.
    """
    dtype = torch_to_numpy_dtype_dict.get(like.dtype)
    if math.prod(shape) * like.element_size() < LARGE or not like.is_cpu or dtype is None:
        return None
    return torch.from_numpy(large_array(shape, dtype))


def large_clone(data: TensorDictBase) -> TensorDictBase:
    """Return a copy of data, like ``clone``; large entries on the host are copied to memory from ``large_array``."""
    copy = data.apply(_cloned)
    assert copy is not None  # apply returns None only if it is asked to leave out empty data
    return copy


def _cloned(value: torch.Tensor) -> torch.Tensor:
    room = None if value.requires_grad else large_tensor(value.shape, value)
    return value.clone() if room is None else room.copy_(value)


# The garbage collector may call these functions at any point, so a lock could deadlock. Instead, each line leaves the
# list in a valid state.


def _take(nbytes: int) -> mmap.mmap:
    for block in reversed(tuple(_idle)):
        if nbytes <= len(block) <= nbytes + nbytes // 4:
            with contextlib.suppress(ValueError):  # another thread was faster
                _idle.remove(block)
                return block
    block = mmap.mmap(-1, nbytes, flags=_PRIVATE)
    _advise(block, "MADV_HUGEPAGE")
    return block


def _give_back(block: mmap.mmap) -> None:
    if len(block) > _KEPT:
        return
    if sum(map(len, tuple(_idle))) > _AT_HAND:
        # The system may reclaim these pages when it runs short of memory.
        _advise(block, "MADV_FREE")
    _idle.append(block)
    while sum(map(len, tuple(_idle))) > _KEPT:
        with contextlib.suppress(IndexError):
            del _idle[0]


def _advise(block: mmap.mmap, advice: str) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not every system has each advice
        block.madvise(getattr(mmap, advice))
