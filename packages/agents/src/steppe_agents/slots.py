"""Slots: the memory in which lanes keep the steps of a request, in this process or shared with workers.

A slot holds steps of one lane. A block is a slot for each lane of a process: all lanes write their step to the same
position of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Unbounded, torch_to_numpy_dtype_dict
from steppe.storage import Layout, Storage, TensorDictBuilder, find_entry
from steppe_agents.running_row import RunningRow
from steppe_agents.trajectories import Trajectories

__all__ = ["Assembly", "Columns", "SlotWriter", "Slots", "Stopped", "slot_length", "step_counts"]

_Tensors = dict[Any, torch.Tensor]
_Array = np.ndarray[Any, np.dtype[Any]]

#: Size of a block in bytes, and its smallest and largest number of steps.
_BLOCK_BYTES, _FEWEST, _MOST = 4 * 1024 * 1024, 16, 512

#: The fields of an entry of the log: which steps of a slot belong to which row.
_SLOT, _START, _LENGTH, _ROW, _LANE, _EPISODE, _FLAGS, _VERSION = range(8)
#: The flags of an entry: it has the first step of its row; the last one; the row can continue in another slice.
_FIRST, _LAST, _ALIVE = 1, 2, 4
#: The counts of a log: entries that were written and read, and blocks that were filled and read.
_WRITTEN, _READ, _FILLED, _FREED = range(4)


class Stopped(Exception):
    """Raised in a waiting worker when the caller cancels the request.

    The worker waits for a free block.
    """


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
    """Memory ``[n_workers * blocks * lanes, length]`` for steps, and one log for each worker.

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
        rows = (n_workers * blocks * lanes, length)
        states = Composite({"none": Unbounded((), dtype=torch.bool)}) if columns.state.is_empty() else columns.state
        self.steps = Storage(columns.step, rows, kind=kind, fd=of_steps)
        self.states = Storage(states, rows if not columns.state.is_empty() else (1, 1), kind=kind, fd=of_states)
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
        self.counts[:, _READ] = self.counts[:, _WRITTEN]
        self.counts[:, _FREED] = self.counts[:, _FILLED]

    @property
    def nbytes(self) -> int:
        """The size of all slots in bytes, which does not depend on the size of requests."""
        return self.steps.layout.nbytes + self.states.layout.nbytes + self.logs.layout.nbytes


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
        self._first = worker * slots.blocks * slots.lanes
        self._entries, self._counts = slots.entries[worker], slots.counts[worker]
        self._blocks = [self._views(block) for block in range(slots.blocks)]
        self.blocks_begun = 0
        self._begin_block()

    def _views(self, block: int) -> tuple[_Tensors, _Tensors]:
        at = slice(self._first + block * self.slots.lanes, self._first + (block + 1) * self.slots.lanes)
        states = {key: self.slots.states.tensors[key][at] for key in self.slots.state_keys}
        return {key: tensor[at] for key, tensor in self.slots.steps.tensors.items()}, states

    def _begin_block(self) -> None:
        self.position, self._is_closed = 0, False
        self.blocks_begun += 1
        self._block = int(self._counts[_FILLED]) % self.slots.blocks
        self.tensors, self.states = self._blocks[self._block]
        self._flat = [(key, tensor.flatten(0, 1)) for key, tensor in self.tensors.items()]

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
            self._counts[_FILLED] += 1
            self._is_closed = True
            self._filled()
        while self._counts[_FILLED] - self._counts[_FREED] >= self.slots.blocks:
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
        at = torch.tensor(lanes, device=CPU) * self.slots.length + self.position
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
        written, capacity = int(self._counts[_WRITTEN]), self.slots.capacity
        slot = self._first + self._block * self.slots.lanes
        for row, flags in rows:
            length = self.position - row.begun_at
            if not length and not flags:
                continue
            first = 0 if row.has_entry else _FIRST
            row.has_entry = True
            self._entries[written % capacity] = (
                *(slot + row.local_lane, row.begun_at, length, row.number, row.lane, row.episode),
                *(flags | first, self.version),
            )
            row.begun_at = self.position
            written += 1
        self._counts[_WRITTEN] = written

    def end(self, row: RunningRow, alive: bool) -> None:
        """Enter the last steps of a row in the log."""
        self.enter([(row, _LAST | (_ALIVE if alive else 0))])

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


class _Piece:
    """Steps that were copied from slots.

    Attributes:
        data: the steps ``[count, *shape]`` by key.
        count: number of steps.
        used: number of steps of rows that were not taken.
    """

    def __init__(self, data: _Tensors, count: int) -> None:
        self.data, self.count, self.used = data, count, count


@dataclass
class _Row:
    """A row that the caller has read in part or whole.

    Attributes:
        parts: the piece, the first step there and the number of steps of each part of the row.
        state: the agent's state at the first step.
        entry: the last entry of the log.
    """

    parts: list[tuple[_Piece, int, int]]
    state: _Tensors
    entry: list[int]


class Assembly:
    """Copy steps from slots, and assemble rows, in the caller's process.

    Args:
        slots: the slots of all workers.
        agent_info, env_info: infos of the rows of the request, or of all lanes in a slice; None for no infos.
    """

    def __init__(self, slots: Slots, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        self.slots, self.agent_info, self.env_info = slots, agent_info, env_info
        self._running: dict[int, _Row] = {}
        self._ended: list[_Row] = []
        self._steps = [(key, tensor.flatten(0, 1)) for key, tensor in slots.steps.tensors.items()]
        self._states = [(key, slots.states.tensors[key].flatten(0, 1)) for key in slots.state_keys]

    def read(self) -> None:
        """Read the logs of all workers, copy the data, and free the blocks that were read."""
        for worker in range(self.slots.n_workers):
            self._read(worker)

    def _read(self, worker: int) -> None:
        counts = self.slots.counts[worker]
        # The entries of a full block are in the log before the block counts as full.
        filled = int(counts[_FILLED])
        written, read = int(counts[_WRITTEN]), int(counts[_READ])
        if written > read:
            entries = self.slots.entries[worker][np.arange(read, written) % self.slots.capacity]
            self._copy(entries)
            counts[_READ] = written
        counts[_FREED] = filled

    def _copy(self, entries: _Array) -> None:
        """Copy the steps of some entries of a log."""
        lengths = entries[:, _LENGTH]
        count = int(lengths.sum())
        first = np.cumsum(lengths) - lengths
        begin = entries[:, _SLOT] * self.slots.length + entries[:, _START]
        index = torch.from_numpy(np.repeat(begin - first, lengths) + np.arange(count))
        piece = _Piece({key: column[index] for key, column in self._steps}, count)
        states: list[_Tensors] = []
        if self._states:
            at = torch.from_numpy(begin)
            columns = {key: column[at.clamp(max=len(column) - 1)] for key, column in self._states}
            states = [{key: column[row] for key, column in columns.items()} for row in range(len(entries))]
        for at_entry, (entry, start) in enumerate(zip(entries.tolist(), first.tolist(), strict=True)):
            if entry[_FLAGS] & _FIRST:
                self._running[entry[_ROW]] = _Row([], states[at_entry] if states else {}, entry)
            row = self._running.get(entry[_ROW])
            if row is None:  # a row of a job that was cancelled
                piece.used -= entry[_LENGTH]
                continue
            row.parts.append((piece, start, entry[_LENGTH]))
            row.entry = entry
            if entry[_FLAGS] & _LAST:
                self._ended.append(self._running.pop(entry[_ROW]))

    def take(self) -> Trajectories | None:
        """Return the rows that have ended since the last call, sorted.

        Returns None if no row has ended.
        """
        taken, self._ended = sorted(self._ended, key=lambda row: row.entry[_ROW]), []
        if not taken:
            return None
        lengths = np.array([sum(length for _, _, length in row.parts) for row in taken])
        n, longest = len(taken), int(lengths.max())
        steps = TensorDictBuilder(self.slots.columns.step, (n, longest))(self._padded(taken, n, longest))
        steps.names = [None, "time"]
        entries = torch.tensor([row.entry for row in taken], device=CPU)
        rows = entries[:, _ROW]
        state = None
        if self.slots.state_keys:
            state = TensorDict(batch_size=[n])
            for key in self.slots.state_keys:
                state.set(key, torch.stack([row.state[key] for row in taken]))
        self._compact()
        made: Any = Trajectories
        return made(  # type: ignore[no-any-return]
            steps=steps,
            length=torch.from_numpy(lengths),
            alive=(entries[:, _FLAGS] & _ALIVE).bool(),
            row=rows,
            lane=entries[:, _LANE].clone(),
            episode=entries[:, _EPISODE].clone(),
            policy_version=entries[:, _VERSION].clone(),
            agent_info=None if self.agent_info is None else self.agent_info[rows],
            env_info=None if self.env_info is None else self.env_info[rows],
            agent_state=state,
            batch_size=[n],
        )

    def _padded(self, taken: list[_Row], n: int, longest: int) -> _Tensors:
        """Return the steps of rows ``[n, longest, *shape]``, with zeros after the end of each."""
        parts: dict[int, tuple[_Piece, list[tuple[int, int, int]]]] = {}
        for at, row in enumerate(taken):
            begun = at * longest
            for piece, start, length in row.parts:
                parts.setdefault(id(piece), (piece, []))[1].append((start, begun, length))
                piece.used -= length
                begun += length
        moves = []
        for piece, copied in parts.values():
            starts, targets, lengths = np.array(copied).T
            offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            source = torch.from_numpy(np.repeat(starts, lengths) + offset)
            moves.append((piece.data, source, torch.from_numpy(np.repeat(targets, lengths) + offset)))
        padded = {}
        for key, column in self._steps:
            out = column.new_zeros((n * longest, *column.shape[1:]))
            for data, source, target in moves:
                out[target] = data[key][source]
            padded[key] = out.reshape(n, longest, *column.shape[1:])
        return padded

    def _compact(self) -> None:
        """Let go of the steps of rows that were taken, in pieces that rows which run hold."""
        for row in self._running.values():
            for at, (piece, start, length) in enumerate(row.parts):
                if piece.used * 2 < piece.count:
                    data = {key: value[start : start + length].clone() for key, value in piece.data.items()}
                    row.parts[at] = _Piece(data, length), 0, length
