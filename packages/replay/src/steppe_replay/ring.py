"""Ring: which columns of a storage hold data, which are being written, and which follow each other in time."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise

import numpy as np

from steppe.errors import StateError
from steppe_replay.journal import N_SLOTS, Journal
from steppe_replay.memory import FileMemory, Memory, Region

__all__ = ["Follower", "Ring", "RingStream"]

#: Words of a ring: columns that writers have begun, columns that they have finished, how often all columns were
#: forgotten, and how often data was edited in place.
BEGUN, FINISHED, CLEARS, EDITS = range(4)
_WORDS_PER_RING = 6


class RingStream:
    """One writer's sequence of columns: a column follows the one that the same stream wrote before.

    Args:
        ring: where it writes.

    Attributes:
        end: the position behind its last column; -1 before it has written one.
        clears: how often all columns were forgotten before it wrote its last column.
        slot: its place in the journal; None if there is no journal, or no place in it.
    """

    def __init__(self, ring: Ring) -> None:
        self.end = -1
        self.slot: int | None = None
        self._asked = False
        self.clears = int(ring.words[CLEARS])

    def join(self, ring: Ring) -> int | None:
        """Return its place in the journal, a new one at the first call."""
        if not self._asked and ring.journal is not None:
            self._asked = True
            with ring.memory.lock:
                self.slot = ring.journal.claim()
            if self.slot is None:
                warnings.warn(
                    f"{N_SLOTS} writers of this storage have a journal of what they write, and this one has none: if "
                    "it is killed, the rows that it is writing are lost. Write with fewer workers.",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return self.slot


class Ring:
    """Columns of a storage, written in turn; the position of a column counts all columns before it.

    Several processes and threads write at the same time. A writer reserves columns under a short lock, copies its data
    without one, and then stamps the columns with their positions. Readers never wait: they read columns that are
    stamped, and afterwards look which of them a writer has begun meanwhile.

    A column that is being written is never given to another writer. Without a journal, a writer that was killed costs
    the columns that it had reserved, and one that was stopped can go on later. With one, others finish its columns.

    Args:
        memory: the memory, with the regions of :meth:`regions`.
        number: the number of this ring in the memory.

    Attributes:
        columns: number of columns.
        stamps: 1 + the position of a finished column, minus that while it is being written, 0 for one that never was.
        breaks: whether a column does not follow the one in front of it.
        links: for columns that break: the position behind the column that the same stream wrote before, 0 if there is
            none.
    """

    def __init__(self, memory: Memory, number: int = 0) -> None:
        self.memory = memory
        self.words = memory.words[number * _WORDS_PER_RING : (number + 1) * _WORDS_PER_RING]
        self.stamps = memory.arrays[f"#stamps{number}",]
        self.breaks = memory.arrays[f"#breaks{number}",]
        self.links = memory.arrays[f"#links{number}",]
        self.columns = len(self.stamps)
        has_journal = number == 0 and isinstance(memory, FileMemory) and ("#slots",) in memory.arrays
        self.journal = Journal(memory) if has_journal else None  # type: ignore[arg-type]
        #: Rings of spare frames, whose columns belong to the writers of this ring.
        self.spares: list[Ring] = []
        # Python reads and writes numbers in a memoryview in half the time.
        self._counts = self.words.data
        # A lock is a memory barrier. Processors other than x86 may otherwise see writes in another order.
        self._barrier = threading.Lock()

    @staticmethod
    def regions(columns: int, number: int = 0) -> list[Region]:
        """The arrays that a ring of so many columns needs."""
        dtypes = {"stamps": "int64", "breaks": "bool", "links": "int64"}
        return [Region((f"#{name}{number}",), dtype, (columns,)) for name, dtype in dtypes.items()]

    @property
    def begun(self) -> int:
        """Columns that writers have begun so far."""
        count: int = self._counts[BEGUN]
        return count

    @property
    def finished(self) -> int:
        """Columns that writers have finished so far."""
        count: int = self._counts[FINISHED]
        return count

    @property
    def n_used(self) -> int:
        """Cells that were written at least once; the first ones."""
        return min(self._counts[BEGUN], self.columns)

    @property
    def settled(self) -> bool:
        """Whether no column is being written, so that all used cells hold data."""
        counts = self._counts
        return bool(counts[BEGUN] == counts[FINISHED])

    def n_filled(self) -> int:
        """Return the number of cells that hold finished data."""
        return self.n_used if self.settled else int(np.count_nonzero(self.stamps > 0))

    # -- writing --------------------------------------------------------------------------------------------------

    def parts(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the cells of positions, as one or two ranges."""
        first, size = start % self.columns, stop - start
        if first + size <= self.columns:
            return [(first, first + size)]
        return [(first, self.columns), (0, first + size - self.columns)]

    def reserve(self, n: int, stream: RingStream | None = None, *, locked: bool = False) -> tuple[int, int, bool]:
        """Reserve columns; other writers and readers keep away from them until ``finish``.

        Args:
            n: how many, at most.
            stream: who writes them; None: nothing follows anything.
            locked: the caller holds the lock of the memory.

        Returns:
            The position of the first column, how many were reserved, and whether the first one follows the column in
            front of it.

        Raises:
            StateError: other writers have reserved every column.
        """
        counts = self._counts
        with nullcontext() if locked else self.memory.lock:
            while True:
                start = self._free(counts[BEGUN], n)
                if start is not None:
                    break
                if n == 1:
                    raise StateError(
                        f"All {self.columns} columns of this storage are being written by other writers, or were when "
                        "these were killed. Use a larger storage, or empty it."
                    )
                n //= 2
            if self.spares and self.journal is not None and self.journal.may_release():
                for spare in self.spares:
                    spare.release()
            if stream is not None and stream.slot is not None:
                assert self.journal is not None
                self.journal.begin(stream.slot, start, n)
            self._mark(start, n)
            before = -1 if stream is None or stream.clears != counts[CLEARS] else stream.end
            follows = before == start
            if not follows:
                self.breaks[start % self.columns], self.links[start % self.columns] = True, max(before, 0)
            if stream is not None:
                stream.end, stream.clears = start + n, counts[CLEARS]
            # Last, because readers take what is before this position for unchanged.
            counts[BEGUN] = start + n
        return start, n, follows

    def _mark(self, start: int, n: int) -> None:
        """Stamp columns as being written, each following the one in front of it."""
        position = start
        for first, last in self.parts(start, start + n):
            self.stamps[first:last] = np.arange(-1 - position, -1 - position - (last - first), -1)
            self.breaks[first:last] = False
            position += last - first

    def _free(self, start: int, n: int) -> int | None:
        """Return the first position from ``start`` with ``n`` columns that nobody writes; None if there is none."""
        end = start + self.columns
        kept = [] if self.journal is None else self.journal.kept()
        if self.settled and n <= self.columns and not kept:
            return start
        while start + n <= end:
            taken = -1
            for first, last in self.parts(start, start + n):
                busy = self.stamps[first:last] < 0  # once, because other writers finish meanwhile
                for a, b in (part for one in kept for part in self.parts(*one)):
                    busy[max(a - first, 0) : max(b - first, 0)] = True
                if busy.any():
                    taken = int(np.flatnonzero(busy)[-1]) + first
            if taken < 0:
                return start
            start += (taken - start) % self.columns + 1
        return None

    def finish(self, start: int, n: int, stream: RingStream | None = None, *, locked: bool = False) -> None:
        """Let readers read reserved columns; ``locked`` if the caller holds the lock of the memory."""
        self._stamp(start, n)
        with nullcontext() if locked else self.memory.lock:
            if stream is not None and stream.slot is not None:
                assert self.journal is not None
                if self.journal.end(stream.slot):
                    return
            self._counts[FINISHED] += n

    def _stamp(self, start: int, n: int) -> None:
        with self._barrier:
            for first, last in self.parts(start, start + n):
                stamps = self.stamps[first:last]
                np.abs(stamps, stamps)

    def finish_others(self, copy: Callable[[int, int, int, bool], None], timeout: float | None = None) -> None:
        """Finish columns of writers that were stopped or killed.

        Args:
            copy: copies rows of a slot of the journal to positions, under the lock of the memory: a function of the
                slot, the first position, how many columns, and whether the first one follows the column in front of it.
            timeout: seconds that a writer has to go on; None: those of the journal.
        """

        def finish(slot: int, start: int, n: int) -> None:
            cell = start % self.columns
            if self.begun < start + n:  # the writer was killed in the middle of reserve()
                self._mark(start, n)
                self.breaks[cell], self.links[cell] = True, 0
                self._counts[BEGUN] = start + n
            # Since the writer has stopped, others may have written over the column in front.
            follows = not self.breaks[cell] and self.stamps[(start - 1) % self.columns] == start
            copy(slot, start, n, follows)
            self._stamp(start, n)
            self._counts[FINISHED] += n

        if self.journal is not None and not (self.settled and timeout is None):
            self.journal.finish_others(finish, *(() if timeout is None else (timeout,)))

    def edit(self) -> None:
        """Tell readers that data was changed in place."""
        with self.memory.lock:
            self.words[EDITS] += 1

    def recover(self) -> None:
        """Let go of columns that were being written when their writers ended; no writer may be at work."""
        with self.memory.lock:
            self.stamps[self.stamps < 0] = 0
            if self.journal is not None:
                self.journal.forget_writers()

    def release(self) -> None:
        """Let go of columns whose writers have died, under the lock of the memory; nobody may be writing any."""
        self.stamps[self.stamps < 0] = 0
        self._counts[FINISHED] = self._counts[BEGUN]

    def clear(self) -> None:
        """Forget all columns; no writer may be at work."""
        with self.memory.lock:
            self.stamps[: self.n_used] = 0
            self.words[[BEGUN, FINISHED]] = 0
            self.words[[CLEARS, EDITS]] += 1

    def relink(self, previous: np.ndarray) -> None:
        """Let the last columns, which were written in one go, follow the columns that they followed elsewhere.

        Args:
            previous: what :meth:`previous` has returned for these columns.
        """
        first = self.begun - len(previous)
        places = np.arange(len(previous))
        breaks = (previous != places - 1) & (places >= len(previous) - self.columns)
        cells = (first + places[breaks]) % self.columns
        with self.memory.lock:
            self.breaks[cells] = True
            self.links[cells] = np.where(previous[breaks] >= 0, first + previous[breaks] + 1, 0)
        self.edit()

    # -- reading --------------------------------------------------------------------------------------------------

    def previous(self, cells: np.ndarray) -> np.ndarray:
        """Return for cells, oldest first, the place among them of the one that each follows; -1 if it is not there."""
        positions = self.stamps[cells] - 1
        disorder = np.flatnonzero(positions[1:] <= positions[:-1])
        if len(disorder):  # writers have begun the oldest cells meanwhile, which nothing follows then
            n = disorder[-1] + 1
            positions[:n] = np.arange(-2 * n, 0, 2) + min(0, int(positions.min()))
        before = np.where(self.breaks[cells], self.links[cells], positions) - 1
        at = np.minimum(positions.searchsorted(before), max(len(positions) - 1, 0))
        return np.where(positions[at] == before, at, -1) if len(cells) else at

    def readable(self, cells: np.ndarray) -> np.ndarray | None:
        """Return which cells hold finished data; None if all do."""
        if self.settled:
            return None
        with self._barrier:
            good = self.stamps.take(cells) > 0
        return None if good.all() else good

    def behind_overwritten(self, start: int, stop: int) -> int:
        """Return the position behind the last of these columns that was overwritten; 0 if none was."""
        stamps = np.concatenate([self.stamps[a:b] for a, b in self.parts(start, stop)])
        changed = np.flatnonzero(np.abs(stamps) != np.arange(1 + start, 1 + stop))
        return start + int(changed[-1]) + 1 if len(changed) else 0

    def overtaken(self, begun: int) -> bool:
        """Return whether writers have begun so many columns since ``begun`` that readers had better begin again."""
        return self.begun - begun > self.columns // 4

    def torn(self, begun: int, cells: np.ndarray, margin: int = 0) -> np.ndarray | None:
        """Return which cells a writer has begun since ``begun`` columns had been; None if none.

        Args:
            begun: the value of ``begun`` before the cells were read.
            cells: the cells.
            margin: how many columns before its own one a cell needs.
        """
        with self._barrier:
            now = self._counts[BEGUN]
        if now == begun:
            return None
        bad: np.ndarray = (cells - begun) % self.columns < now - begun + margin
        return bad if bad.any() else None


class Follower:
    """Reports which columns were finished since the last time, in the order of their positions.

    Args:
        ring: the ring.
    """

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._seen = 0
        self._pending: list[tuple[int, int]] = []
        self._edits = int(ring.words[EDITS])
        self._finished = 0

    def new(self) -> Sequence[tuple[int, int]] | None:
        """Return the new ranges of positions; None if all data is new, because it was edited or overwritten."""
        ring = self.ring
        words = ring.words
        if words[EDITS] != self._edits:
            self._edits, self._seen, self._finished, self._pending = int(words[EDITS]), 0, 0, []
            return None
        # The count first: what is finished later has another count.
        finished, begun = int(words[FINISHED]), int(words[BEGUN])
        if begun == self._seen and finished == self._finished:
            return ()
        low = begun - ring.columns
        waiting = [(max(a, low), b) for a, b in [*self._pending, (self._seen, begun)] if b > max(a, low)]
        self._seen, self._finished, self._pending = begun, finished, []
        ranges: list[tuple[int, int]] = []
        for start, stop in waiting:
            for part, good in self._split(start, stop):
                (ranges if good else self._pending).append(part)
        return ranges

    def _split(self, start: int, stop: int) -> list[tuple[tuple[int, int], bool]]:
        """Cut positions where finished columns and others meet."""
        stamps = np.concatenate([self.ring.stamps[a:b] for a, b in self.ring.parts(start, stop)])
        good = stamps == np.arange(1 + start, 1 + stop)
        if good.all():
            return [((start, stop), True)]
        edges = np.flatnonzero(good[1:] != good[:-1]) + 1
        cuts = [0, *edges.tolist(), stop - start]
        return [((start + a, start + b), bool(good[a])) for a, b in pairwise(cuts)]
