"""Assembly: copies steps from slots, and assembles rows, in the caller's process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from steppe.storage import TensorDictBuilder
from steppe_agents.slot_log import (
    ALIVE,
    EPISODE,
    FILLED,
    FIRST,
    FLAGS,
    FREED,
    LANE,
    LAST,
    LENGTH,
    READ,
    ROW,
    SLOT,
    START,
    VERSION,
    WRITTEN,
)
from steppe_agents.slots import Slots
from steppe_agents.trajectories import Trajectories

__all__ = ["Assembly"]

_Tensors = dict[Any, torch.Tensor]
_Array = np.ndarray[Any, np.dtype[Any]]


class _Piece:
    """Steps of some entries of a log, in the columns of slots until :meth:`copy`.

    Attributes:
        columns: data ``[m, *shape]`` by key.
        index: where the steps are in the columns, ``[count]``.
        used: number of steps of rows that were not taken.
    """

    def __init__(self, columns: _Tensors, index: _Array) -> None:
        self.columns, self.index, self.used = columns, index, len(index)

    def copy(self) -> None:
        """Copy the steps, because the memory of the columns is needed, or holds many other steps."""
        index = torch.from_numpy(self.index)
        self.columns = {key: column.index_select(0, index) for key, column in self.columns.items()}
        self.index = np.arange(len(index))


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
        #: For each worker, the pieces whose steps are in slots.
        self._in_slots: list[list[_Piece]] = [[] for _ in range(slots.n_workers)]
        self._columns = {key: tensor.flatten(0, 2) for key, tensor in slots.steps.tensors.items()}
        self._states = [(key, slots.states.tensors[key].flatten(0, 2)) for key in slots.state_keys]

    def read(self) -> None:
        """Read the logs of all workers, and free the blocks that were read, after copying their steps."""
        for worker in range(self.slots.n_workers):
            self._read(worker)

    def _read(self, worker: int) -> None:
        counts = self.slots.counts[worker]
        # The entries of a full block are in the log before the block counts as full.
        filled = int(counts[FILLED])
        written, read = int(counts[WRITTEN]), int(counts[READ])
        if written > read:
            entries = self.slots.entries[worker][np.arange(read, written) % self.slots.capacity]
            self._in_slots[worker].append(self._note(entries))
            counts[READ] = written
        if filled > counts[FREED]:
            for piece in self._in_slots[worker]:
                if piece.used:
                    piece.copy()
            self._in_slots[worker] = []
            counts[FREED] = filled

    def _note(self, entries: _Array) -> _Piece:
        """Note the steps of some entries of a log, and which rows have ended."""
        lengths = entries[:, LENGTH]
        count = int(lengths.sum())
        first = np.cumsum(lengths) - lengths
        lanes = self.slots.lanes
        block, lane = np.divmod(entries[:, SLOT], lanes)
        begin = (block * self.slots.length + entries[:, START]) * lanes + lane
        piece = _Piece(self._columns, np.repeat(begin - first * lanes, lengths) + np.arange(count) * lanes)
        states: list[_Tensors] = []
        if self._states:
            at = torch.from_numpy(begin)
            columns = {key: column[at.clamp(max=len(column) - 1)] for key, column in self._states}
            states = [{key: column[row] for key, column in columns.items()} for row in range(len(entries))]
        for at_entry, (entry, start) in enumerate(zip(entries.tolist(), first.tolist(), strict=True)):
            if entry[FLAGS] & FIRST:
                self._running[entry[ROW]] = _Row([], states[at_entry] if states else {}, entry)
            row = self._running.get(entry[ROW])
            if row is None:  # a row of a job that was cancelled
                piece.used -= entry[LENGTH]
                continue
            row.parts.append((piece, start, entry[LENGTH]))
            row.entry = entry
            if entry[FLAGS] & LAST:
                self._ended.append(self._running.pop(entry[ROW]))
        return piece

    def take(self) -> Trajectories | None:
        """Return the rows that have ended since the last call, sorted.

        Returns None if no row has ended.
        """
        taken, self._ended = sorted(self._ended, key=lambda row: row.entry[ROW]), []
        if not taken:
            return None
        lengths = np.array([sum(length for _, _, length in row.parts) for row in taken])
        n, longest = len(taken), int(lengths.max())
        steps = TensorDictBuilder(self.slots.columns.step, (n, longest))(self._padded(taken, n, longest))
        steps.names = [None, "time"]
        entries = torch.from_numpy(np.array([row.entry for row in taken]))
        rows = entries[:, ROW]
        state = None
        if self.slots.state_keys:
            state = TensorDict(batch_size=[n])
            for key in self.slots.state_keys:
                state.set(key, torch.stack([row.state[key] for row in taken]))
        self._compact()
        return Trajectories(  # type: ignore[call-arg]  # tensorclass adds batch_size
            steps=steps,
            length=torch.from_numpy(lengths),
            alive=(entries[:, FLAGS] & ALIVE).bool(),
            row=rows,
            lane=entries[:, LANE].clone(),
            episode=entries[:, EPISODE].clone(),
            policy_version=entries[:, VERSION].clone(),
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
        #: Columns, for each piece the steps to copy from there, and for each piece the steps of the result.
        moves: dict[int, tuple[_Tensors, list[_Array], list[_Array]]] = {}
        for piece, copied in parts.values():
            starts, targets, lengths = np.array(copied).T
            offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            _, source, target = moves.setdefault(id(piece.columns), (piece.columns, [], []))
            source.append(piece.index[np.repeat(starts, lengths) + offset])
            target.append(np.repeat(targets, lengths) + offset)
        indices = [
            (columns, torch.from_numpy(np.concatenate(source)), torch.from_numpy(np.concatenate(target)))
            for columns, source, target in moves.values()
        ]
        padded = {}
        for key, column in self._columns.items():
            out = column.new_zeros((n * longest, *column.shape[1:]))
            for columns, read, written in indices:
                out.index_copy_(0, written, columns[key].index_select(0, read))  # half the time of an assignment
            padded[key] = out.reshape(n, longest, *column.shape[1:])
        return padded

    def _compact(self) -> None:
        """Let go of the steps of rows that were taken, in pieces that rows which run hold."""
        for row in self._running.values():
            for at, (piece, start, length) in enumerate(row.parts):
                if piece.columns is not self._columns and piece.used * 2 < len(piece.index):
                    part = _Piece(piece.columns, piece.index[start : start + length])
                    part.copy()
                    row.parts[at] = part, 0, length
