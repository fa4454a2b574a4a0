"""The fields of an entry of the log are where their numbers say."""

from __future__ import annotations

import numpy as np

from steppe_agents import slot_log
from steppe_agents.slot_log import ALIVE, ENTRY, FIRST, LAST

FIELDS = ("SLOT", "START", "LENGTH", "ROW", "LANE", "EPISODE", "FLAGS", "VERSION")


def test_a_packed_entry_reads_as_a_row_of_numbers() -> None:
    entries = np.zeros((3, len(FIELDS)), np.int64)

    ENTRY.pack_into(memoryview(entries).cast("B"), 2 * ENTRY.size, *range(10, 18))

    assert entries[:2].sum() == 0
    assert [entries[2, getattr(slot_log, name)] for name in FIELDS] == list(range(10, 18))


def test_flags_can_be_combined() -> None:
    assert len({first | last | alive for first in (0, FIRST) for last in (0, LAST) for alive in (0, ALIVE)}) == 8
