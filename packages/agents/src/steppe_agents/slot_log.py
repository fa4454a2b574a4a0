"""The log of slots: which steps of a slot belong to which row."""

from __future__ import annotations

import struct

#: The fields of an entry.
SLOT, START, LENGTH, ROW, LANE, EPISODE, FLAGS, VERSION = range(8)
#: The layout of an entry in memory, for a writer of single entries.
ENTRY = struct.Struct("8q")
#: The flags of an entry: it has the first step of its row; the last one; the row can continue in another slice.
FIRST, LAST, ALIVE = 1, 2, 4
#: The counts of a log: entries that were written and read, and blocks that were filled and read.
WRITTEN, READ, FILLED, FREED = range(4)
