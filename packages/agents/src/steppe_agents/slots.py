"""Slots: the memory in which lanes keep the steps of a request, in this process or shared with workers.

A slot holds steps of one lane. A block is a slot for each lane of a process: all lanes write their step to the same
position of a block. The steps of all lanes at a position lie side by side, so that a step touches few pages of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from steppe.specs import Composite, Unbounded
from steppe.storage import Layout, Storage
from steppe_agents.slot_log import FILLED, FREED, READ, WRITTEN

__all__ = ["Columns", "Slots", "slot_length", "step_counts"]

#: Size of a block in bytes, and its smallest and largest number of steps.
_BLOCK_BYTES, _FEWEST, _MOST = 4 * 1024 * 1024, 16, 512


@dataclass(frozen=True)
class Columns:
    """The layout of the data of a request.

    Attributes:
        step: spec of one step of one row.
        state: spec of the agent's state at the first step of a row; empty if the state is not stored.
    """

    step: Composite
    state: Composite


def slot_length(columns: Columns, lanes: int) -> int:
    """Return the number of steps of a slot, so that a block of ``lanes`` slots has some megabytes.

    A large block is read seldom, and most episodes end in the block in which they begin.
    """
    nbytes = Layout.of(columns.step, (lanes,)).nbytes
    return min(max(_BLOCK_BYTES // max(nbytes, 1), _FEWEST), _MOST)


def step_counts(n_workers: int, fd: int | None = None) -> Storage:
    """Return shared memory with the number of steps of each worker, ``"steps"`` ``[n_workers]``.

    Args:
        n_workers: number of workers.
        fd: the descriptor of another process's memory. None allocates memory.
    """
    return Storage(Composite({"steps": Unbounded((), dtype=torch.int64)}), (n_workers,), kind="shared", fd=fd)


class Slots:
    """Memory ``[n_workers * blocks, length, lanes]`` for steps, and one log for each worker.

    An entry of a log says which steps of a slot belong to which row.

    A worker writes the data of a row before the entry in its log, and the caller reads the log first. So the caller
    finds the rows that have ended without a message, while the worker may be in a step that takes long.

    Args:
        columns: the layout of the data.
        n_workers: number of processes that write.
        lanes: number of lanes of each.
        blocks: number of blocks of each.
        length: number of steps in a slot.
        kind: ``"plain"`` memory of this process, or ``"shared"`` memory.
        fds: the descriptors of another process's memory, which this object then owns. None allocates memory.
    """

    def __init__(
        self,
        columns: Columns,
        n_workers: int,
        lanes: int,
        blocks: int,
        length: int,
        *,
        kind: Literal["plain", "shared"] = "shared",
        fds: Sequence[int] | None = None,
    ) -> None:
        self.columns, self.n_workers, self.lanes, self.blocks, self.length = columns, n_workers, lanes, blocks, length
        #: At most ``lanes`` rows end in a step, and ``lanes`` more entries are written when a block is full.
        self.capacity = blocks * lanes * (length + 1)
        log = Composite(
            entries=Unbounded((self.capacity, 8), dtype=torch.int64), counts=Unbounded((4,), dtype=torch.int64)
        )
        of_steps, of_states, of_logs = fds or (None, None, None)
        rows = (n_workers * blocks, length, lanes)
        states = Composite({"none": Unbounded((), dtype=torch.bool)}) if columns.state.is_empty() else columns.state
        self.steps = Storage(columns.step, rows, kind=kind, fd=of_steps)
        self.states = Storage(states, rows if not columns.state.is_empty() else (1, 1, 1), kind=kind, fd=of_states)
        self.logs = Storage(log, (n_workers,), kind=kind, fd=of_logs)
        self.entries, self.counts = self.logs.arrays["entries"], self.logs.arrays["counts"]
        self.state_keys: list[Any] = [] if columns.state.is_empty() else list(self.states.tensors)

    @property
    def settings(self) -> tuple[Columns, int, int, int, int]:
        """The arguments with which another process makes this object."""
        return self.columns, self.n_workers, self.lanes, self.blocks, self.length

    @property
    def fds(self) -> list[int]:
        """The file descriptors of the memory, for another process."""
        return [self.steps.fd, self.states.fd, self.logs.fd]

    def discard(self) -> None:
        """Drop unread entries of an earlier job from the logs. No worker may be writing."""
        self.counts[:, READ] = self.counts[:, WRITTEN]
        self.counts[:, FREED] = self.counts[:, FILLED]

    @property
    def nbytes(self) -> int:
        """The size of all slots in bytes, which does not depend on the size of requests."""
        return self.steps.layout.nbytes + self.states.layout.nbytes + self.logs.layout.nbytes
