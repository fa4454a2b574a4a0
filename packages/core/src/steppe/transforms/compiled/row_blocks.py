"""InBlocks: a few rows after the other, so that what is large is transformed while it is in a core's cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from steppe.envs import BoundWriter, Ended, Rows
from steppe.transforms.compiled.row_plan import RowPlan

__all__ = ["InBlocks", "blocks_of", "part_in_blocks"]

#: Bytes that a core's cache has: of images a few, for which the cost of a call is shared by several rows.
_CACHE = 2**21
#: Bytes of a row from which on it takes longer to fetch them from main memory than to make a call.
_LARGE = 2**14


def blocks_of(n: int, size: int, times: int = 1) -> list[slice]:
    """Parts of ``n`` rows that fit into a core's cache, or several of them, of about equal length.

    Args:
        n: how many rows.
        size: bytes of each.
        times: into how many caches they fit.
    """
    at_once = max(1, round(times * _CACHE / max(1, size)))
    count = -(-n // at_once)
    return [slice(i * n // count, (i + 1) * n // count) for i in range(count)]


def part_in_blocks(plans: Sequence[RowPlan], shares: Callable[[int], bool]) -> tuple[int, int]:
    """How much of a chain is worth its while in blocks: the number of its first transforms, and the most bytes of a row
    that one of them reads and writes.

    It ends behind the last transform of large entries before which there is none that has to see all rows at once.

    Args:
        plans: the chain of each environment.
        shares: whether one call of transform i serves all rows.
    """
    plan, end, size = plans[0], 0, 0
    for i in range(len(plan.parts)):
        if not all(_in_blocks(one, i) or (one.hooks[i].pairs and not shares(i)) for one in plans):
            break
        used = _bytes_of(plan, i)
        if used >= _LARGE:
            end, size = i + 1, max(size, used)
    return end, size


def _in_blocks(plan: RowPlan, i: int) -> bool:
    """Whether transform i does the same to rows, however many there are."""
    hook = plan.hooks[i]
    rows = hook.rows
    if rows is None:
        return hook.does_nothing or hook.only_inverts
    return not rows.notices_calls and (rows.bind is None or rows.by_blocks)


def _bytes_of(plan: RowPlan, i: int) -> int:
    """How much of a row transform i reads and writes."""
    hook = plan.hooks[i]
    read = hook.pairs or [] if hook.rows is None else [(key, key) for key in (*hook.rows.reads, *hook.rows.writes)]
    before, behind = plan.values[i], plan.values[i + 1]
    values = [before[key] for key, _ in read if key in before] + [behind[key] for _, key in read if key in behind]
    places = dict.fromkeys(value.place for value in values)
    return sum(math.prod(place.shape) * place.dtype.itemsize for place in places)


class InBlocks(BoundWriter):
    """A bound writer of all rows that steps some of them after the others.

    Args:
        rows: all of them. ``done_dirty`` says that a transform behind this writer has set a done entry.
        blocks: for each block its rows, what writes them, and the rows that the environments in it write.
    """

    def __init__(self, rows: Rows, blocks: Sequence[tuple[slice, BoundWriter, Rows]]) -> None:
        self.rows = rows
        self._blocks = [(block.start, block, bound.step, bound.reset) for block, bound, _ in blocks]
        self._written = [written for *_, written in blocks]
        self._block_of = [i for i, (block, *_) in enumerate(blocks) for _ in range(block.start, block.stop)]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Act; see :class:`~steppe.envs.BoundWriter`."""
        if self.rows.done_dirty:
            self.rows.done_dirty = False
            for written in self._written:
                written.done_dirty = True
        ended: Ended = []
        if at is None:
            for first, block, step, _ in self._blocks:
                of_block = step(actions[block])
                if of_block:
                    ended += [(first + row, terminated, truncated) for row, terminated, truncated in of_block]
            return ended
        for first, places, step, _ in self._parts(at):
            of_block = step([actions[place] for place in places], [at[place] - first for place in places])
            ended += [(first + row, terminated, truncated) for row, terminated, truncated in of_block]
        return ended

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        """Begin episodes; see :class:`~steppe.envs.BoundWriter`."""
        for first, places, _, reset in self._parts(at):
            informed = None if env_info is None else [env_info[place] for place in places]
            reset([at[place] - first for place in places], informed)

    def _parts(self, at: Sequence[int]) -> list[tuple[int, list[int], Any, Any]]:
        """The blocks that some rows are in: the first row of each, places in ``at``, and its two functions."""
        places: dict[int, list[int]] = {}
        for place, row in enumerate(at):
            places.setdefault(self._block_of[row], []).append(place)
        parts = ((self._blocks[i], found) for i, found in places.items())
        return [(first, found, step, reset) for (first, _, step, reset), found in parts]
