"""ControlBlock: the flags of workers in shared memory."""

from __future__ import annotations

import os

from steppe.workers.control_block import ORDERED, PER_WORKER, ControlBlock


def test_two_blocks_of_one_descriptor_share_memory():
    ours = ControlBlock(3, 8)
    theirs = ControlBlock(3, 8, os.dup(ours.fd))
    ours.flags[2 * PER_WORKER + ORDERED] = 41
    theirs.extra[7] = 9

    assert theirs.flags[2 * PER_WORKER + ORDERED] == 41
    assert ours.extra[7] == 9
    assert len(ours.flags) == 3 * PER_WORKER
    for block in (ours, theirs):
        os.close(block.fd)
    assert theirs.flags[2 * PER_WORKER] == 41  # memory lives as long as its views
