"""InBlocks: steps and transforms rows in blocks of a few, so that large entries stay in the cache of a core."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from steppe.envs import BoundWriter, Ended, EnvInfos, Rows
from steppe.transforms.compiled.row_plan import RowPlan, shared

_Part: TypeAlias = "tuple[int, list[int], Callable[..., Ended], Callable[..., None]]"

__all__ = ["InBlocks", "blocks_of", "part_in_blocks"]

#: Bytes of a block: those of a core's cache. It holds a few images, which share the cost of a call.
_CACHE = 2**21
#: Rows of at least as many bytes take longer to fetch from main memory than a call takes.
_LARGE = 2**14


def blocks_of(n: int, size: int, times: int = 1) -> list[slice]:
    """Return slices of ``n`` rows, of about equal length, each of which fits into a core's cache.

    Args:
        n: number of rows.
        size: bytes of each row.
        times: how many times the size of the cache a block may have.
    """
    longest = max(1, round(times * _CACHE / max(1, size)))
    count = -(-n // longest)
    return [slice(i * n // count, (i + 1) * n // count) for i in range(count)]


def part_in_blocks(plans: Sequence[RowPlan]) -> tuple[int, int]:
    """Return how many transforms of a chain run in blocks, and the largest number of bytes that one uses of a row.

    The last of them is the last transform of large entries before any transform that needs all rows at once.

    Args:
        plans: the chain of each environment.
    """
    plan, end, size = plans[0], 0, 0
    for i in range(len(plan.parts)):
        if not all(_in_blocks(chain, i) or (chain.hooks[i].pairs and not shared(plans, i)) for chain in plans):
            break
        used = _bytes_of(plan, i)
        if used >= _LARGE:
            end, size = i + 1, max(size, used)
    return end, size


def _in_blocks(plan: RowPlan, i: int) -> bool:
    """Whether transform ``i`` treats each row by itself."""
    hook = plan.hooks[i]
    rows = hook.rows
    if rows is None:
        return hook.does_nothing or hook.only_inverts
    return rows.by_blocks or (rows.bind is None and rows.wrap is None)


def _bytes_of(plan: RowPlan, i: int) -> int:
    """Return how many bytes of a row transform ``i`` reads and writes."""
    hook = plan.hooks[i]
    read = hook.pairs or [] if hook.rows is None else [(key, key) for key in (*hook.rows.reads, *hook.rows.writes)]
    before, behind = plan.values[i], plan.values[i + 1]
    values = [before[key] for key, _ in read if key in before] + [behind[key] for _, key in read if key in behind]
    places = dict.fromkeys(value.place for value in values)
    return sum(math.prod(place.shape) * place.dtype.itemsize for place in places)


class InBlocks(BoundWriter):
    """A bound writer of all rows that steps one block after the other.

    Args:
        rows: all rows. ``done_dirty`` says that a transform behind this writer has set a done entry.
        blocks: for each block the slice of its rows, its bound writer, and the rows that its environments write.
    """

    def __init__(self, rows: Rows, blocks: Sequence[tuple[slice, BoundWriter, Rows]]) -> None:
        self.rows = rows
        self._blocks = [(block.start, block, bound.step, bound.reset) for block, bound, _ in blocks]
        self._written = [written for *_, written in blocks]
        self._block_of = [i for i, (block, *_) in enumerate(blocks) for _ in range(block.start, block.stop)]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
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

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        for first, places, _, reset in self._parts(at):
            infos = None if env_info is None else [env_info[place] for place in places]
            reset([at[place] - first for place in places], infos)

    def _parts(self, at: Sequence[int]) -> list[_Part]:
        """Return the blocks of some rows: first row of the block, positions in ``at``, its step and its reset."""
        places: dict[int, list[int]] = {}
        for place, row in enumerate(at):
            places.setdefault(self._block_of[row], []).append(place)
        parts = ((self._blocks[i], positions) for i, positions in places.items())
        return [(first, positions, step, reset) for (first, _, step, reset), positions in parts]
