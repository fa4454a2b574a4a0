"""Journal: a copy of the rows that each writer is writing, from which others finish them if it stops or dies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from steppe_replay.memory import FileMemory, Region

__all__ = ["N_SLOTS", "Journal"]

#: Writers that have a place in the journal; others write without one, see ``RingStream.join``.
N_SLOTS = 64
#: Words of a slot: its state, the columns that are written, and the process of the writer with its namespace.
_STATE, _START, _N, _PID, _SPACE = range(5)
#: A word of the first slot: whether the columns of any writer were written by others.
_ANY = 5
#: A word of the first slot: whether a writer has died whose spare frames are still reserved.
_DIED = 6
#: A slot without a writer; one whose writer writes nothing; one whose columns are being written; and one whose columns
#: another process has written while its writer was stopped or dead. Nobody else writes the last two's columns: a writer
#: that goes on copies the same values once more.
_FREE, _IDLE, _WRITING, _WRITTEN = range(4)
#: Seconds after which others finish columns.
_TIMEOUT = 0.02


class Journal:
    """What writers of a shared storage are writing.

    A writer copies its rows to its slot before it reserves columns and copies them there. So rows that a writer leaves
    unfinished are finished by the process that samples, and rows that it has not reserved yet overwrite nothing.

    Args:
        memory: the memory, with the regions of :meth:`regions`.
    """

    def __init__(self, memory: FileMemory) -> None:
        self.memory = memory
        self.slots = memory.arrays["#slots",]
        self._seen: dict[tuple[int, int], float] = {}

    @staticmethod
    def regions() -> list[Region]:
        """The array of the slots; their rows belong to the storage."""
        return [Region(("#slots",), "int64", (N_SLOTS, 8))]

    # -- under the lock of the memory -----------------------------------------------------------------------------

    def claim(self) -> int | None:
        """Return a slot for a new writer; None if all are taken."""
        for slot in range(N_SLOTS):
            state = int(self.slots[slot, _STATE])
            if state == _FREE or (state == _IDLE and self._is_dead(slot)):
                self.slots[slot, 1:5] = 0, 0, os.getpid(), _namespace()
                self.slots[slot, _STATE] = _IDLE
                return slot
        return None

    def begin(self, slot: int, start: int, n: int) -> None:
        """Note that a writer has reserved columns."""
        self.slots[slot, _START] = start
        self.slots[slot, _N] = n
        self.slots[slot, _STATE] = _WRITING

    def end(self, slot: int) -> bool:
        """Note that a writer has written its columns; return whether another process had written them before."""
        written = self.slots[slot, _STATE] == _WRITTEN
        self.slots[slot, _STATE] = _IDLE
        return bool(written)

    def kept(self) -> list[tuple[int, int]]:
        """Return the ranges of columns that only their writers may write, although they are finished."""
        ranges: list[tuple[int, int]] = []
        if not self.slots[0, _ANY]:
            return ranges
        for slot in np.flatnonzero(self.slots[:, _STATE] == _WRITTEN).tolist():
            if self._is_dead(slot):
                self.slots[slot, _STATE] = _FREE
                self.slots[0, _DIED] = 1
            else:
                start, n = self.slots[slot, [_START, _N]].tolist()
                ranges.append((start, start + n))
        self.slots[0, _ANY] = len(ranges)
        return ranges

    def may_release(self) -> bool:
        """Return, once after a writer has died, whether nobody writes, so that all that is reserved was its own."""
        if not self.slots[0, _DIED]:
            return False
        states = self.slots[:, _STATE]
        # With all slots taken, writers without one may be at work.
        if (states != _FREE).all() or (states == _WRITING).any() or (states == _WRITTEN).any():
            return False
        self.slots[0, _DIED] = 0
        return True

    def forget_writers(self) -> None:
        """Give up all slots; no writer may be at work."""
        self.slots[self.slots[:, _STATE] != _FREE, _STATE] = _FREE  # a file without writers stays as it is

    # -- finishing for others -------------------------------------------------------------------------------------

    def finish_others(self, finish: Callable[[int, int, int], None], timeout: float = _TIMEOUT) -> None:
        """Finish the columns of writers that have not gone on for a while, unless somebody holds the lock.

        Args:
            finish: copies columns of a slot to their places: a function of the slot, the first position and how many.
            timeout: seconds.
        """
        now, seen = time.monotonic(), {}
        for slot in np.flatnonzero(self.slots[:, _STATE] == _WRITING).tolist():
            start = int(self.slots[slot, _START])
            since = seen[slot, start] = self._seen.get((slot, start), now)
            if now - since < timeout or not self.memory.lock.try_acquire():
                continue
            try:
                state, first, n = self.slots[slot, : _N + 1].tolist()
                if state == _WRITING and first == start:
                    finish(slot, start, n)
                    self.slots[0, _ANY] = 1
                    self.slots[slot, _STATE] = _WRITTEN
            finally:
                self.memory.lock.release()
        self._seen = seen

    def _is_dead(self, slot: int) -> bool:
        """Whether the process of a writer has ended; False if it cannot be known here."""
        pid, space = self.slots[slot, [_PID, _SPACE]].tolist()
        if space != _namespace():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        with suppress(OSError):  # a process that ended, and of which nobody has asked how
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
        return False


def _namespace() -> int:
    """Return the number of the namespace in which numbers of processes are valid; 0 if there is only one."""
    with suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0
