"""TrajectoryTable: where the trajectories of a storage begin and end, kept up to date as data comes."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe_replay.ring import Follower, Ring
from steppe_replay.tensor_storage import TensorStorage

__all__ = ["TrajectoryTable"]


class TrajectoryTable:
    """The trajectories in a storage, as ranges of positions of one lane.

    Only new columns are read. A trajectory goes on over writes of the same writer, and ends where another writer's data
    begins. Its first steps fall away as they are overwritten.

    Args:
        storage: the storage.
        end_keys: entries that are True at the last step of a trajectory.
        traj_key: an entry with the number of the trajectory, instead.

    Attributes:
        version: changes when ``starts``, ``stops`` and ``lanes`` have changed.
        starts: ``[n]`` position of the first step of each trajectory that is left.
        stops: ``[n]`` position behind the last step.
        lanes: ``[n]`` its lane.
    """

    def __init__(self, storage: TensorStorage, end_keys: list[Any], traj_key: Any) -> None:
        assert storage.ring is not None
        self.storage, self.end_keys, self.traj_key = storage, end_keys, traj_key
        self.ring: Ring = storage.ring
        self.version = 0
        self._follower = Follower(self.ring)
        self._begun = -1
        self._clear()

    def _clear(self) -> None:
        lanes = self.storage.lanes
        self._starts = np.empty(64, np.int64)
        self._stops = np.empty(64, np.int64)
        self._lanes = np.empty(64, np.int64)
        self._first = self._n = 0
        #: For each lane the trajectory that may go on, the position at which it would, and its number.
        self._open = np.full(lanes, -1)
        self._open_at = np.full(lanes, -1)
        self._open_id = np.zeros(lanes, np.int64)

    def update(self) -> None:
        """Read new columns."""
        new = self._follower.new()
        if new is None:
            self._clear()
            self._begun = -1
            new = self._follower.new() or ()
        for start, stop in new:
            self._read(start, stop)
        begun = self.ring.begun
        if not new and begun == self._begun:
            return
        self._begun = begun
        self.version += 1
        # Columns that show overwritten frames are lost too.
        low = begun - self.ring.columns + self.storage.margin
        while self._first < self._n and self._stops[self._first] <= low:
            self._first += 1
        self.starts = np.maximum(self._starts[self._first : self._n], low)
        self.stops = self._stops[self._first : self._n].copy()
        self.lanes = self._lanes[self._first : self._n].copy()
        if low > 0 and self.storage.lanes > 1:
            kept = self.stops > low
            if not kept.all():
                self.starts, self.stops, self.lanes = self.starts[kept], self.stops[kept], self.lanes[kept]

    def _read(self, start: int, stop: int) -> None:
        lanes, n = self.storage.lanes, stop - start
        cells = np.arange(start, stop) % self.ring.columns
        rows = (cells[:, None] * lanes + np.arange(lanes)).ravel()
        begins = np.zeros((n, lanes), np.bool_)
        goes_on = (self._open >= 0) & (self._open_at == start) & (not self.ring.breaks[cells[0]])
        ids = None
        if self.traj_key is not None:
            ids = self.storage.take_entry(self.traj_key, rows).reshape(n, lanes, -1)[..., 0].numpy().astype(np.int64)
            begins[1:] = ids[1:] != ids[:-1]
            goes_on &= ids[0] == self._open_id
            ended = np.zeros(lanes, np.bool_)
        else:
            ends = np.zeros((n, lanes), np.bool_)
            for key in self.end_keys:
                ends |= self.storage.take_entry(key, rows).reshape(n, lanes, -1).numpy().astype(np.bool_).any(-1)
            begins[1:] = ends[:-1]
            ended = ends[-1]
        begins[1:] |= self.ring.breaks[cells[1:], None]
        begins[0] = ~goes_on
        lane, at = np.nonzero(begins.T)
        # The step at which the trajectory ends that begins there: the next beginning in its lane.
        following = np.append(at[1:], n)
        following[np.append(lane[1:] != lane[:-1], True)] = n
        if goes_on.any():
            until = np.where(begins.any(0), begins.argmax(0), n)[goes_on]
            self._stops[self._open[goes_on]] = start + until
        self._append(start + at, start + following, lane)
        first = self._n - len(lane)
        # Those that begin last go on, unless their last step is an end.
        self._open[lane] = first + np.arange(len(lane))
        self._open_at[:] = stop
        self._open[ended] = -1
        if ids is not None:
            self._open_id[:] = ids[-1]

    def _append(self, starts: np.ndarray, stops: np.ndarray, lanes: np.ndarray) -> None:
        n = self._n + len(starts)
        if n > len(self._starts):
            live = self._n - self._first
            size = max(64, 2 * (live + len(starts)))
            for name in ("_starts", "_stops", "_lanes"):
                grown = np.empty(size, np.int64)
                grown[:live] = getattr(self, name)[self._first : self._n]
                setattr(self, name, grown)
            self._open = np.where(self._open >= self._first, self._open - self._first, -1)
            self._first, self._n = 0, live
            n = live + len(starts)
        self._starts[self._n : n], self._stops[self._n : n], self._lanes[self._n : n] = starts, stops, lanes
        self._n = n

    def find(self, cells: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Return how many steps there are from rows on to the end of their trajectory; 0 for rows in none."""
        if getattr(self, "_sorted_version", None) != self.version:
            self._sorted_version = self.version
            self._order = np.lexsort((self.starts, self.lanes))
            self._base = int(self.starts.min(initial=0))
            self._span = int(self.stops.max(initial=0)) - self._base + 1
            self._keys = self.lanes[self._order] * self._span + self.starts[self._order] - self._base
        positions = self.ring.stamps[cells] - 1
        at = self._keys.searchsorted(lanes * self._span + positions - self._base, "right") - 1
        entry = self._order[np.maximum(at, 0)]
        remaining = self.stops[entry] - positions
        inside = (at >= 0) & (self.lanes[entry] == lanes) & (self.starts[entry] <= positions) & (remaining > 0)
        result: np.ndarray = np.where(inside, remaining, 0)
        return result
