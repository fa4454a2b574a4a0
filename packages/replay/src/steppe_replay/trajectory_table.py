"""TrajectoryTable: where the trajectories of a storage begin and end, kept up to date as data comes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from steppe_replay.ring import Follower, Ring
from steppe_replay.tensor_storage import TensorStorage

__all__ = ["TrajectoryTable"]


class _Open:
    """The trajectories of one writer that may go on, one for each lane.

    Args:
        segments: ``[lanes]`` number of the last segment of each, -1 where the trajectory has ended.
        ids: ``[lanes]`` number of the trajectory; None if ends are marked.
    """

    __slots__ = ("ids", "segments")

    def __init__(self, segments: np.ndarray, ids: np.ndarray | None) -> None:
        self.segments, self.ids = segments, ids


class TrajectoryTable:
    """The trajectories in a storage.

    Only new columns are read. A trajectory goes on over the writes of one writer, also where other writers have written
    in between: then it has several segments. Its first steps fall away as they are overwritten.

    Every step has a number. The steps of a trajectory have consecutive numbers; :meth:`rows_of` returns their rows.

    Args:
        storage: the storage.
        end_keys: entries that are True at the last step of a trajectory.
        traj_key: an entry with the number of the trajectory, instead.

    Attributes:
        version: changes when ``starts``, ``stops`` and ``lanes`` have changed.
        starts: ``[n]`` number of the first step of each trajectory that is left.
        stops: ``[n]`` number behind that of the last step.
        lanes: ``[n]`` its lane.
        begun: how many columns writers had begun when the trajectories were listed, which were whole then; -1 before.
    """

    def __init__(self, storage: TensorStorage, end_keys: list[Any], traj_key: Any) -> None:
        assert storage.ring is not None
        self.storage, self.end_keys, self.traj_key = storage, end_keys, traj_key
        self.ring: Ring = storage.ring
        for key in end_keys if traj_key is None else [traj_key]:
            storage.take_entry(key, np.empty(0, np.int64))  # raises KeyError before anything is read
        self.version = 0
        self._follower = Follower(self.ring)
        self.begun = -1
        self._segments: _Segments | None = None
        self._sorted_version = -1
        self._clear()

    def _clear(self) -> None:
        #: Segments by number: ranges of positions of one lane, and the number of the segment that each continues, or
        #: -1. Numbers count all segments so far; those before ``_dropped`` are gone, and not in the arrays.
        self._starts, self._stops, self._lanes, self._before = (np.empty(64, np.int64) for _ in range(4))
        self._dropped = self._first = self._n = 0
        #: The open trajectories of each writer, by the position behind its last column.
        self._open: dict[int, _Open] = {}
        #: The position of the first column that is left. Columns before it may be overwritten.
        self._low = 0

    def update(self) -> None:
        """Read new columns, and again if writers overwrote a quarter of all columns meanwhile."""
        while True:
            begun = self.ring.begun
            self._read_new()
            if not self.ring.overtaken(begun):
                return

    def _read_new(self) -> None:
        new = self._follower.new()
        if new is None:
            self._clear()
            self.begun = -1
            new = self._follower.new() or ()
        for start, stop in new:
            breaks = np.concatenate([self.ring.breaks[a:b] for a, b in self.ring.parts(start, stop)])
            edges = [start, *(start + np.flatnonzero(breaks[1:]) + 1).tolist(), stop]
            for first, last in pairwise(edges):
                self._read(first, last)
        for start, stop in new:
            self._low = max(self._low, self.ring.behind_overwritten(start, stop))
        begun = self.ring.begun
        if not new and begun == self.begun:
            return
        self.begun = begun
        self.version += 1
        self._low = low = max(self._low, self.storage.first_whole(begun))
        while self._first < self._n and self._stops[self._first] <= low:
            self._first += 1
        self._open = {end: each for end, each in self._open.items() if end > low}
        live = slice(self._first, self._n)
        starts, stops, lanes = np.maximum(self._starts[live], low), self._stops[live].copy(), self._lanes[live].copy()
        before = self._before[live] - (self._dropped + self._first)
        kept = stops > low
        linked = before >= 0
        linked[linked] = kept[before[linked]]
        if linked.any():
            self._segments = _Segments(starts, stops, lanes, np.where(linked, before, -1), kept)
            self.starts, self.stops, self.lanes = self._segments.trajectories()
        else:
            self._segments = None
            if not kept.all():
                starts, stops, lanes = starts[kept], stops[kept], lanes[kept]
            self.starts, self.stops, self.lanes = starts, stops, lanes

    def _read(self, start: int, stop: int) -> None:
        """Read columns that follow each other."""
        lanes, n = self.storage.lanes, stop - start
        cells = np.arange(start, stop) % self.ring.columns
        rows = (cells[:, None] * lanes + np.arange(lanes)).ravel()
        begins = np.zeros((n, lanes), np.bool_)
        previous = int(self.ring.links[cells[0]]) if self.ring.breaks[cells[0]] else start
        open_ = self._open.pop(previous, None)
        goes_on = np.zeros(lanes, np.bool_) if open_ is None else open_.segments >= 0
        ids = None
        if self.traj_key is not None:
            ids = self.storage.take_entry(self.traj_key, rows).reshape(n, lanes, -1)[..., 0].numpy().astype(np.int64)
            begins[1:] = ids[1:] != ids[:-1]
            if open_ is not None and open_.ids is not None:
                goes_on &= ids[0] == open_.ids
            ended = np.zeros(lanes, np.bool_)
        else:
            ends = np.zeros((n, lanes), np.bool_)
            for key in self.end_keys:
                ends |= self.storage.take_entry(key, rows).reshape(n, lanes, -1).numpy().astype(np.bool_).any(-1)
            begins[1:] = ends[:-1]
            ended = ends[-1]
        begins[0] = ~goes_on if previous == start else True
        lane, at = np.nonzero(begins.T)
        # The step at which the segment ends that begins there: the next beginning in its lane.
        following = np.append(at[1:], n)
        following[np.append(lane[1:] != lane[:-1], True)] = n
        last = np.full(lanes, -1)
        before = np.full(len(lane), -1)
        if open_ is not None and goes_on.any():
            if previous == start:  # the segment grows
                until = np.where(begins.any(0), begins.argmax(0), n)[goes_on]
                self._stops[open_.segments[goes_on] - self._dropped] = start + until
                last[goes_on] = open_.segments[goes_on]
            else:
                continued = (at == 0) & goes_on[lane]
                before[continued] = open_.segments[lane[continued]]
        first = self._append(start + at, start + following, lane, before)
        # Those that begin last go on, unless their last step is an end.
        last[lane] = first + np.arange(len(lane))
        last[ended] = -1
        self._open[stop] = _Open(last, None if ids is None else ids[-1])

    def _append(self, starts: np.ndarray, stops: np.ndarray, lanes: np.ndarray, before: np.ndarray) -> int:
        """Add segments; return the number of the first one."""
        n = self._n + len(starts)
        names = ("_starts", "_stops", "_lanes", "_before")
        if n > len(self._starts):
            live = self._n - self._first
            size = max(64, 2 * (live + len(starts)))
            for name in names:
                grown = np.empty(size, np.int64)
                grown[:live] = getattr(self, name)[self._first : self._n]
                setattr(self, name, grown)
            self._dropped += self._first
            self._first, self._n = 0, live
            n = live + len(starts)
        for name, values in zip(names, (starts, stops, lanes, before), strict=True):
            getattr(self, name)[self._n : n] = values
        number = self._dropped + self._n
        self._n = n
        return number

    # -- reading --------------------------------------------------------------------------------------------------

    def rows_of(self, steps: np.ndarray, lanes: np.ndarray) -> np.ndarray:
        """Return the rows of steps.

        Args:
            steps: numbers of steps.
            lanes: their lanes; not read in a storage with one lane.
        """
        columns, n_lanes = self.ring.columns, self.storage.lanes
        index = (steps if self._segments is None else self._segments.positions(steps)) % columns
        return index if n_lanes == 1 else index * n_lanes + lanes

    def find(self, cells: np.ndarray, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of steps, and how many steps there are from them to the end of their trajectory.

        Args:
            cells: the cells of the steps.
            lanes: their lanes.

        Returns:
            A pair of ``[n]`` and ``[n]``; there are 0 steps from a cell that is in no trajectory.
        """
        segments = self._segments
        starts, stops, lane_of = (
            (self.starts, self.stops, self.lanes)
            if segments is None
            else (segments.starts, segments.stops, segments.lanes)
        )
        if self._sorted_version != self.version:
            self._sorted_version = self.version
            self._order = np.lexsort((starts, lane_of))
            self._base = int(starts.min(initial=0))
            self._span = int(stops.max(initial=0)) - self._base + 1
            self._keys = lane_of[self._order] * self._span + starts[self._order] - self._base
        positions = self.ring.stamps[cells] - 1
        at = self._keys.searchsorted(lanes * self._span + positions - self._base, "right") - 1
        entry = self._order[np.maximum(at, 0)]
        inside = (at >= 0) & (lane_of[entry] == lanes) & (starts[entry] <= positions) & (positions < stops[entry])
        steps = positions if segments is None else segments.numbers[entry] + positions - starts[entry]
        last = stops[entry] if segments is None else segments.last_numbers[entry]
        return steps, np.where(inside, last - steps, 0)


class _Segments:
    """Trajectories of several segments: their steps are numbered so that those of a trajectory are consecutive.

    Args:
        starts: ``[n]`` position of the first step of each segment.
        stops: ``[n]`` position behind the last one.
        lanes: ``[n]`` lane.
        before: ``[n]`` which segment each continues, or -1. It stands in front of it.
        kept: ``[n]`` which segments have steps that are left.

    Attributes:
        starts, stops, lanes: those of the segments that are left, trajectory by trajectory.
        numbers: ``[n]`` number of the first step of each segment.
        last_numbers: ``[n]`` number behind the last step of its trajectory.
    """

    def __init__(
        self, starts: np.ndarray, stops: np.ndarray, lanes: np.ndarray, before: np.ndarray, kept: np.ndarray
    ) -> None:
        # The first segment of each trajectory: twice as far ahead in each turn.
        first = np.where(before >= 0, before, np.arange(len(before)))
        while not np.array_equal(further := first[first], first):
            first = further
        order = np.argsort(first, kind="stable")
        order = order[kept[order]]
        self.starts, self.stops, self.lanes = starts[order], stops[order], lanes[order]
        ends = (self.stops - self.starts).cumsum()
        self.numbers = ends - (self.stops - self.starts)
        first = first[order]
        self._begins = np.flatnonzero(np.append(True, first[1:] != first[:-1]))
        self._ends = np.append(ends[self._begins[1:] - 1], ends[-1:])
        self.last_numbers = np.repeat(self._ends, np.diff(np.append(self._begins, len(order))))

    def trajectories(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the numbers of the first steps, the numbers behind the last ones, and the lanes."""
        return self.numbers[self._begins], self._ends, self.lanes[self._begins]

    def positions(self, steps: np.ndarray) -> np.ndarray:
        """Return the positions of steps."""
        at = self.numbers.searchsorted(steps, "right") - 1
        result: np.ndarray = self.starts[at] + steps - self.numbers[at]
        return result
