"""SlotWriter: writes the steps of rows to slots, in the process of the lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, torch_to_numpy_dtype_dict
from steppe.storage import find_entry
from steppe_agents.running_row import RunningRow
from steppe_agents.slot_log import ALIVE, ENTRY, FILLED, FIRST, FREED, LAST, WRITTEN
from steppe_agents.slots import Slots

__all__ = ["SlotWriter", "Stopped"]

_Tensors = dict[Any, torch.Tensor]


class Stopped(Exception):
    """Raised in a waiting worker when the caller cancels the request.

    The worker waits for a free block.
    """


class SlotWriter:
    """Write the steps of rows to slots, in the process of the lanes.

    Args:
        slots: the slots of all workers.
        worker: which worker writes.
        filled: called when a block is full, so that the caller reads it while this process fills the next one.
        wait: called while the caller has read no block of a full memory; returns True if the caller cancels the
            request.

    Attributes:
        position: the step of the current block that is written next.
        version: version of the policy of the current job.
        blocks_begun: how many blocks this object has begun.
        tensors, states: the memory of the current block, ``[lanes, length, *shape]`` by key.
    """

    def __init__(
        self, slots: Slots, worker: int, *, filled: Callable[[], None], wait: Callable[[], bool] = lambda: False
    ) -> None:
        self.slots, self._filled, self._wait, self.version = slots, filled, wait, 0
        self._first = worker * slots.blocks
        #: A memoryview, which reads and writes a number in a third of the time of an array.
        self._counts = slots.counts[worker].data
        #: The entries of the log as bytes, because assigning a tuple to a row of an array takes five times as long.
        self._memory = memoryview(slots.entries[worker]).cast("B")
        self._blocks = [self._views(block) for block in range(slots.blocks)]
        self.blocks_begun = 0
        self._begin_block()

    def _views(self, block: int) -> tuple[_Tensors, _Tensors]:
        at = self._first + block
        states = {key: self.slots.states.tensors[key][at].transpose(0, 1) for key in self.slots.state_keys}
        return {key: tensor[at].transpose(0, 1) for key, tensor in self.slots.steps.tensors.items()}, states

    def _begin_block(self) -> None:
        self.position, self._is_closed = 0, False
        self.blocks_begun += 1
        self._block = int(self._counts[FILLED]) % self.slots.blocks
        self.tensors, self.states = self._blocks[self._block]
        self._flat = [(key, tensor.transpose(0, 1).flatten(0, 1)) for key, tensor in self.tensors.items()]

    def make_room(self, rows: Sequence[RunningRow]) -> bool:
        """Begin the next block if the current one is full; return whether it did.

        Args:
            rows: the rows that run; their part in the full block is entered in the log.

        Raises:
            Stopped: the caller cancels the request.
        """
        if self.position < self.slots.length:
            return False
        if not self._is_closed:
            self.enter([(row, 0) for row in rows])
            self._counts[FILLED] += 1
            self._is_closed = True
            self._filled()
        while self._counts[FILLED] - self._counts[FREED] >= self.slots.blocks:
            if self._wait():
                raise Stopped
        self._begin_block()
        for row in rows:
            row.begun_at = 0
        return True

    def write(self, frame: TensorDictBase, lanes: list[int]) -> None:
        """Write a step of some lanes ``[k]`` to the current position.

        Raises:
            SpecError: entries or shapes of the step differ from the layout.
        """
        at = torch.tensor(lanes, device=CPU) + self.position * self.slots.lanes
        try:
            for key, column in self._flat:
                column.index_copy_(0, at, frame.get(key))
        except (RuntimeError, KeyError, AttributeError, TypeError):
            self.check(frame)
            raise
        self.position += 1

    def write_state(
        self, state: TensorDictBase | None, lanes: Sequence[int], rows: Sequence[int] | None = None
    ) -> None:
        """Write the agent's states of rows that begin in some lanes with the next step.

        Args:
            state: the states ``[k]``.
            lanes: the lanes.
            rows: the states of these lanes in ``state``; None if there are no others.
        """
        if not self.states or state is None:
            return
        for key, tensor in self.states.items():
            value = find_entry(state, key).detach()
            if tensor.dtype not in torch_to_numpy_dtype_dict:
                tensor[list(lanes), self.position] = value if rows is None else value[list(rows)]
            else:  # numpy takes a fourth of the time
                array = value.numpy()
                tensor.numpy()[lanes, self.position] = array if rows is None else array[rows]

    def enter(self, rows: Sequence[tuple[RunningRow, int]]) -> None:
        """Enter the steps of rows since their last entry in the log.

        Args:
            rows: rows, each with ``LAST`` and ``ALIVE`` flags; 0 for a row that goes on.
        """
        written, capacity = int(self._counts[WRITTEN]), self.slots.capacity
        slot = (self._first + self._block) * self.slots.lanes
        for row, flags in rows:
            length = self.position - row.begun_at
            if not length and not flags:
                continue
            first = 0 if row.has_entry else FIRST
            row.has_entry = True
            at = written % capacity * ENTRY.size
            ENTRY.pack_into(
                *(self._memory, at, slot + row.local_lane, row.begun_at, length, row.number, row.lane, row.episode),
                *(flags | first, self.version),
            )
            row.begun_at = self.position
            written += 1
        self._counts[WRITTEN] = written

    def end(self, row: RunningRow, alive: bool) -> None:
        """Enter the last steps of a row in the log."""
        self.enter([(row, LAST | (ALIVE if alive else 0))])

    def fits(self, frame: TensorDictBase) -> bool:
        """Return whether a step ``[k]`` has the layout of the slots."""
        values = dict(frame.items(True, True))
        return values.keys() == self.tensors.keys() and all(
            values[key].shape[1:] == tensor.shape[2:] and values[key].dtype is tensor.dtype
            for key, tensor in self.tensors.items()
        )

    def check(self, frame: TensorDictBase) -> None:
        """Raise a SpecError if a step ``[k]`` has another layout than the slots."""
        expected = {key: tuple(tensor.shape[2:]) for key, tensor in self.tensors.items()}
        actual = {key: tuple(value.shape[1:]) for key, value in frame.items(True, True)}
        problems = [f"{key!r} is missing" for key in expected if key not in actual]
        problems += [f"{key!r} is not declared" for key in actual if key not in expected]
        problems += [
            f"{key!r} has shape {actual[key]}, and had {shape} in the first step"
            for key, shape in expected.items()
            if key in actual and actual[key] != shape
        ]
        problems += [
            f"{key!r} has dtype {frame.get(key).dtype}, and had {tensor.dtype} in the first step"
            for key, tensor in self.tensors.items()
            if key in actual and frame.get(key).dtype is not tensor.dtype
        ]
        if problems:
            raise SpecError(f"A step does not have the entries of the first one: {'; '.join(problems)}.")
