"""FrameStore: images once, although each stands in two stacks of several rows."""

from __future__ import annotations

import math

import numpy as np
import torch

from steppe_replay.leaves import dtype_name, take_rows
from steppe_replay.memory import Memory, Region
from steppe_replay.ring import Ring

__all__ = ["FrameStore", "StackLeaf"]

#: A row whose stacks need no spare frames.
_NONE = np.iinfo(np.int64).max
#: Columns that are looked through at once.
_SCAN = 4096


class FrameStore:
    """An observation at the root and below ``"next"``, made of frames that are stored once.

    A row keeps the newest frame of its ``next``, and the addresses of all frames of both stacks. Where a root is not
    the ``next`` of the row before, as at the beginning of an episode, its frames are kept in a spare room, a ring of
    its own. What is equal is found by comparing the data, so what is read is always what was written.

    If that many episodes begin that the spare room is too small, the oldest rows are given up.

    Args:
        memory: the memory, with the regions of :meth:`regions`.
        key: the key of the observation.
        shape: the shape of one observation.
        dtype: its dtype.
        n_frames: frames in a stack, along its first dimension.
        n_rows: rows of the storage.
        number: the number of the ring of the spare room.
    """

    def __init__(
        self,
        memory: Memory,
        key: tuple[str, ...],
        shape: tuple[int, ...],
        dtype: torch.dtype,
        n_frames: int,
        n_rows: int,
        number: int,
    ) -> None:
        self.key, self.shape, self.dtype, self.n_frames, self.n_rows = key, shape, dtype, n_frames, n_rows
        self.spare = Ring(memory, number)
        self._frames = memory.arrays[("#frames", *key)]
        self._addresses = memory.arrays[("#addresses", *key)]
        self._oldest = memory.arrays[("#oldest", *key)]
        self.next_key = ("next", *key)
        self._whole = 0

    @staticmethod
    def regions(
        key: tuple[str, ...], shape: tuple[int, ...], dtype: torch.dtype, n_frames: int, n_rows: int, number: int
    ) -> list[Region]:
        """The arrays that a store needs; those of rows first."""
        frame = (shape[0] // n_frames, *shape[1:])
        # Every 32nd row may begin an episode, in small storages each one.
        n_spare = max(n_rows * n_frames // 32, min(2 * n_rows * n_frames, 2048))
        return [
            Region(("#frames", *key), dtype_name(dtype), (n_rows + n_spare, *frame)),
            Region(("#addresses", *key), "int64", (n_rows, 2 * n_frames)),
            Region(("#oldest", *key), "int64", (n_rows,)),
            *Ring.regions(n_spare, number),
        ]

    def most_columns(self, lanes: int) -> int:
        """How many columns can be written at once."""
        return max(1, self.spare.columns // (4 * lanes * 2 * self.n_frames))

    # -- writing --------------------------------------------------------------------------------------------------

    def write(
        self,
        start: int,
        n: int,
        columns: int,
        root: np.ndarray,
        following: np.ndarray,
        *,
        follows: bool,
        locked: bool = False,
    ) -> None:
        """Write columns.

        Args:
            start: the position of the first column.
            n: number of columns.
            columns: columns of the storage.
            root: ``[n, *lead, *shape]``, or the rows one behind the other.
            following: the same below ``"next"``.
            follows: whether the first column follows the column in front of it.
            locked: the caller holds the lock of the memory.
        """
        k, frame = self.n_frames, self._frames.shape[1:]
        roots = root.reshape(n, -1, k, *frame)
        nexts = following.reshape(n, -1, k, *frame)
        lanes = roots.shape[1]
        own = ((start + np.arange(n)) % columns)[:, None] * lanes + np.arange(lanes)
        continues = np.zeros((n, lanes), np.bool_)
        before = self._addresses[((start - 1) % columns) * lanes + np.arange(lanes), k:] if follows else None
        if before is not None:
            continues[0] = _equal(take_rows(self._frames, before.ravel()).reshape(1, lanes, k, *frame), roots[:1])[0]
        continues[1:] = _equal(nexts[:-1], roots[1:])
        slides = np.ones((n, lanes), np.bool_) if k == 1 else _equal(nexts[:, :, :-1], roots[:, :, 1:])

        # The addresses of all frames in the order of time, lane by lane. Each row adds those of its root unless it
        # continues the row before (the first row of a lane always does), and those of its next.
        new = ~continues.T.ravel()
        first = np.zeros((lanes, n), np.bool_)
        first[:, 0] = True
        jumps = ~slides.T.ravel()
        n_root = k * (new | first.ravel())
        ends = np.cumsum(n_root + 1 + (k - 1) * jumps)
        root_end = ends - 1 - (k - 1) * jumps
        stream = np.full(ends[-1], -1, np.int64)
        numbers = np.full(ends[-1], _NONE, np.int64)
        stream[ends - 1] = own.T.ravel()
        back = np.arange(-k, 0)
        if before is not None and continues[0].any():
            at = root_end.reshape(lanes, n)[:, :1] + back
            at, addresses = at[continues[0]].ravel(), before[continues[0]].ravel()
            stream[at] = addresses
            spare = addresses >= self.n_rows
            numbers[at[spare]] = self.spare.stamps[addresses[spare] - self.n_rows] - 1
        at_root = (root_end[new][:, None] + back).ravel()
        at_next = (ends[jumps][:, None] + back[:-1]).ravel() if k > 1 else at_root[:0]
        by_lane = roots.swapaxes(0, 1).reshape(-1, k, *frame)[new].reshape(-1, *frame)
        if len(at_next):
            jumped = nexts.swapaxes(0, 1).reshape(-1, k, *frame)[jumps][:, :-1].reshape(-1, *frame)
            by_lane = np.concatenate([by_lane, jumped])
        at_spare = np.concatenate([at_root, at_next])
        reserved: list[tuple[int, int]] = []
        done = 0
        while done < len(at_spare):
            number, count, _ = self.spare.reserve(len(at_spare) - done, locked=locked)
            reserved.append((number, count))
            for a, b in self.spare.parts(number, number + count):
                at = at_spare[done : done + b - a]
                self._frames[self.n_rows + a : self.n_rows + b] = by_lane[done : done + b - a]
                stream[at] = np.arange(self.n_rows + a, self.n_rows + b)
                numbers[at] = np.arange(number, number + b - a)
                number, done = number + b - a, done + b - a

        windows = np.concatenate([root_end[:, None] + back, ends[:, None] + back], 1)
        addresses = stream[windows].reshape(lanes, n, 2 * k).swapaxes(0, 1)
        oldest = numbers[windows].min(1).reshape(lanes, n).T
        self._addresses[own.ravel()], self._oldest[own.ravel()] = addresses.reshape(-1, 2 * k), oldest.ravel()
        newest, cell = nexts[:, :, -1], start % columns
        part = min(n, columns - cell)
        self._frames[cell * lanes : (cell + part) * lanes] = newest[:part].reshape(-1, *frame)
        self._frames[: (n - part) * lanes] = newest[part:].reshape(-1, *frame)
        for number, count in reserved:
            self.spare.finish(number, count, locked=locked)

    # -- reading --------------------------------------------------------------------------------------------------

    def take(self, index: np.ndarray, *, following: bool) -> torch.Tensor:
        """Return stacks ``[len(index), *shape]``."""
        k = self.n_frames
        addresses = self._addresses.take(index, 0)[:, k:] if following else self._addresses.take(index, 0)[:, :k]
        # Rows that are being written may have any address: they are read again.
        addresses = np.clip(addresses, 0, len(self._frames) - 1)
        stacks = take_rows(self._frames, addresses.ravel()).reshape(len(index), *self.shape)
        return torch.from_numpy(stacks)

    def first_whole(self, first: int, begun: int, ring: Ring, lanes: int) -> int:
        """Return the position of the first column from which on rows have their frames in the spare room.

        Args:
            first: the position of the oldest column.
            begun: the position behind the newest one.
            ring: the columns of the storage.
            lanes: rows in a column.
        """
        limit = self.spare.begun - self.spare.columns
        if limit <= 0:
            self._whole = 0
            return first
        self._whole = start = max(first, self._whole, 0)
        while start < begun:
            stop = min(start + _SCAN, begun)
            cells = np.arange(start, stop) % ring.columns
            oldest = self._oldest.reshape(-1, lanes)[cells].min(1)
            oldest[ring.stamps[cells] != np.arange(start + 1, stop + 1)] = _NONE  # those of older rows
            lost = np.flatnonzero(oldest < limit)
            if len(lost):
                self._whole = start + int(lost[-1]) + 1
            elif (oldest < _NONE).any():  # frames are given up in the order of rows
                break
            start = stop
        return self._whole

    def readable(self, index: np.ndarray) -> np.ndarray:
        """Return which rows still have their frames in the spare room."""
        good: np.ndarray = self._oldest.take(index) >= self.spare.begun - self.spare.columns
        return good


class StackLeaf:
    """One of the two entries of a FrameStore, to read it.

    Args:
        store: the frames.
        following: the entry below ``"next"``.
    """

    def __init__(self, store: FrameStore, following: bool) -> None:
        self.store, self.following = store, following
        self.shape, self.dtype = store.shape, store.dtype

    def take(self, index: np.ndarray) -> torch.Tensor:
        return self.store.take(index, following=self.following)

    def source(self, values: torch.Tensor) -> np.ndarray:
        """Return values as ``FrameStore.write`` takes them."""
        return values.detach().cpu().numpy()


def _equal(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return for arrays ``[n, lanes, ...]`` which of their elements ``[...]`` are equal, byte by byte."""
    n, lanes = one.shape[:2]
    size = math.prod(one.shape[2:])
    one, other = (np.ascontiguousarray(each).reshape(n, lanes, size).view(np.uint8) for each in (one, other))
    if one.shape[-1] % 8 == 0:
        one, other = one.view(np.uint64), other.view(np.uint64)
    equal: np.ndarray = (one == other).all(-1)
    return equal
