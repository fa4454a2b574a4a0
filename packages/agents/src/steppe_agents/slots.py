"""Slots: shared memory through which workers return the data of requests.

A slot holds a part of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Unbounded
from steppe.storage import Storage, TensorDictBuilder
from steppe_agents.frame_store import RunningRow
from steppe_agents.trajectories import Trajectories

__all__ = ["Assembly", "Columns", "FullSlot", "SlotWriter", "Slots", "Stopped", "step_counts"]

_Tensors = dict[Any, torch.Tensor]


class Stopped(Exception):
    """Raised in a waiting worker when the caller cancels the request.

    The worker waits for a free slot.
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


def step_counts(n_workers: int, fd: int | None = None) -> Storage:
    """Return shared memory with the number of steps of each worker, ``"steps"`` ``[n_workers]``.

    Args:
        n_workers: number of workers.
        fd: the descriptor of another process's memory. None allocates memory.
    """
    return Storage(Composite({"steps": Unbounded((), dtype=torch.int64)}), (n_workers,), kind="shared", fd=fd)


class FullSlot(NamedTuple):
    """A slot that a worker has filled, or the last slot of its row.

    The worker sends this to the caller.

    Attributes:
        slot: number of the slot.
        row: index of the row in the request; in a slice, the number of the lane.
        lane, episode: see :class:`~steppe.Trajectories`.
        length: number of steps in the slot.
        ends: the slot is the last of its row.
        alive: the row can continue in another slice.
    """

    slot: int
    row: int
    lane: int
    episode: int
    length: int
    ends: bool
    alive: bool


class Slots:
    """Shared memory ``[n, length]`` for steps, and a header for each slot.

    Args:
        columns: the layout of the data.
        n: number of slots.
        length: number of steps in a slot.
        fds: the descriptors of another process's memory, which this object then owns. None allocates memory.
    """

    def __init__(self, columns: Columns, n: int, length: int, fds: list[int] | None = None) -> None:
        self.columns, self.n, self.length = columns, n, length
        head = Composite({"full": Unbounded((), dtype=torch.int64), "state": columns.state})
        of_steps, of_heads = fds or (None, None)
        self.steps = Storage(columns.step, (n, length), kind="shared", fd=of_steps)
        self.heads = Storage(head, (n,), kind="shared", fd=of_heads)
        #: 1 for a slot that has not been read: the worker sets it, and the caller clears it.
        self.full = self.heads.arrays["full"]
        self.state_keys = [key for key in self.heads.tensors if key != "full"]

    @property
    def fds(self) -> list[int]:
        """The file descriptors of the memory, for another process."""
        return [self.steps.fd, self.heads.fd]

    @property
    def nbytes(self) -> int:
        """The size of all slots in bytes, which does not depend on the size of requests."""
        return self.steps.layout.nbytes + self.heads.layout.nbytes

    def of_worker(self, worker: int, n_workers: int) -> range:
        """Return the numbers of the slots of one worker."""
        return range(self.n * worker // n_workers, self.n * (worker + 1) // n_workers)


class SlotWriter:
    """Write the steps of rows to slots, in a worker.

    Args:
        slots: the slots of all workers.
        rows: the numbers of this worker's slots, at least one for each of its lanes.
        send: sends full slots to the caller.
        pause: waits for a short time; returns True if the caller cancels the request.
    """

    def __init__(
        self, slots: Slots, rows: range, send: Callable[[list[FullSlot]], None], pause: Callable[[], bool]
    ) -> None:
        self.slots, self._own, self._send, self._pause = slots, rows, send, pause
        self._columns = [(key, tensor.flatten(0, 1)) for key, tensor in slots.steps.tensors.items()]
        self._in_use: set[int] = set()
        self._full: list[FullSlot] = []
        self._checked = False

    def clear(self) -> None:
        """Free the slots of all rows, and drop the full slots that were not reported yet."""
        self._in_use.clear()
        self._full = []

    def drop_running(self) -> None:
        """Free the slots of the rows that have not ended."""
        self._in_use.clear()

    def write(self, frame: TensorDictBase, rows: list[RunningRow]) -> None:
        """Write a step of some rows ``[k]``.

        Raises:
            SpecError: entries or shapes of the step differ from the layout.
            Stopped: the caller cancels the request.
        """
        length = self.slots.length
        positions = []
        for row in rows:
            if row.slot is None:
                row.slot, row.in_slot = self._wait_for_slot(), 0
                if row.state is not None and not row.length:
                    for key in self.slots.state_keys:
                        self.slots.heads.tensors[key][row.slot].copy_(row.state.get(key[1:]))
            positions.append(row.slot * length + row.in_slot)
            row.in_slot += 1
        at = torch.tensor(positions, device=CPU)
        if not self._checked:
            self._check(frame)
            self._checked = True
        try:
            for key, column in self._columns:
                column.index_copy_(0, at, frame.get(key))
        except (RuntimeError, KeyError, AttributeError, TypeError):
            self._check(frame)
            raise
        for row in rows:
            if row.in_slot == length:
                self._close(row, ends=False, alive=False)

    def end(self, row: RunningRow, alive: bool) -> None:
        """End a row, after its last step was written.

        Args:
            row: the row.
            alive: the row can continue in another slice.
        """
        if row.slot is not None:
            self._close(row, ends=True, alive=alive)
        else:  # write() has closed the slot, because the last step filled it
            last = max(i for i, full in enumerate(self._full) if full.row == row.number)
            self._full[last] = self._full[last]._replace(ends=True, alive=alive)

    def take(self) -> list[FullSlot]:
        """Return the slots that have been closed since the last call."""
        full, self._full = self._full, []
        return full

    def _close(self, row: RunningRow, *, ends: bool, alive: bool) -> None:
        """Pass the slot of a row to the caller."""
        assert row.slot is not None
        self.slots.full[row.slot] = 1
        self._in_use.discard(row.slot)
        self._full.append(FullSlot(row.slot, row.number, row.lane, row.episode, row.in_slot, ends, alive))
        row.slot = None

    def _wait_for_slot(self) -> int:
        """Return a free slot of this worker.

        If all slots are full, wait until the caller has read one.
        """
        while True:
            for slot in self._own:
                if slot not in self._in_use and not self.slots.full[slot]:
                    self._in_use.add(slot)
                    return slot
            if self._full:
                self._send(self.take())
            if self._pause():
                raise Stopped

    def _check(self, frame: TensorDictBase) -> None:
        """Raise an error if a step has another layout than the slots."""
        rows = frame.batch_size
        expected = {key: tuple(tensor.shape[2:]) for key, tensor in self.slots.steps.tensors.items()}
        actual = {key: tuple(frame.get(key).shape[len(rows) :]) for key in frame.keys(True, True)}
        problems = [f"{key!r} is missing" for key in expected if key not in actual]
        problems += [f"{key!r} is not declared" for key in actual if key not in expected]
        problems += [
            f"{key!r} has shape {actual[key]} but the specs have {shape}"
            for key, shape in expected.items()
            if key in actual and actual[key] != shape
        ]
        if problems:
            raise SpecError(f"A step does not match the specs of environment and policy: {'; '.join(problems)}.")


class Assembly:
    """Assemble rows from slots, in the caller's process.

    Args:
        slots: the slots of all workers.
        agent_info, env_info: infos of the rows of the request, or of all lanes in a slice; None for no infos.
    """

    def __init__(self, slots: Slots, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        self.slots, self.agent_info, self.env_info = slots, agent_info, env_info
        self._running: dict[int, list[tuple[int, _Tensors]]] = {}
        self._states: dict[int, _Tensors] = {}
        self._ended: list[tuple[FullSlot, int]] = []

    def add(self, full: Iterable[FullSlot], version: int) -> None:
        """Copy the data of full slots, and free them.

        Args:
            full: the slots.
            version: version of the policy in the worker.
        """
        slots = self.slots
        for slot in full:
            if slot.row not in self._running:
                heads = slots.heads.tensors
                self._states[slot.row] = {key[1:]: heads[key][slot.slot].clone() for key in slots.state_keys}
            data = {key: tensor[slot.slot, : slot.length].clone() for key, tensor in slots.steps.tensors.items()}
            self._running.setdefault(slot.row, []).append((slot.length, data))
            slots.full[slot.slot] = 0
            if slot.ends:
                self._ended.append((slot, version))

    def take(self) -> Trajectories | None:
        """Return the rows that have ended since the last call, sorted.

        Returns None if no row has ended.
        """
        taken, self._ended = sorted(self._ended, key=lambda each: each[0].row), []
        if not taken:
            return None
        ends = [slot for slot, _ in taken]
        parts = [self._running.pop(slot.row) for slot in ends]
        states = [self._states.pop(slot.row) for slot in ends]
        lengths = [sum(length for length, _ in row) for row in parts]
        n, longest = len(ends), max(lengths)
        out = {
            key: tensor.new_zeros((n, longest, *tensor.shape[2:])) for key, tensor in self.slots.steps.tensors.items()
        }
        for at, row in enumerate(parts):
            begun = 0
            for length, data in row:
                for key, value in data.items():
                    out[key][at, begun : begun + length] = value
                begun += length
        steps = TensorDictBuilder(self.slots.columns.step, (n, longest))(out)
        steps.names = [None, "time"]
        rows = torch.tensor([slot.row for slot in ends], device=CPU)
        state = None
        if self.slots.state_keys:
            stacked = {key: torch.stack([each[key] for each in states]) for key in states[0]}
            state = TensorDict(
                {key if len(key) > 1 else key[0]: value for key, value in stacked.items()}, batch_size=[n]
            )
        made: Any = Trajectories
        return made(  # type: ignore[no-any-return]
            steps=steps,
            length=torch.tensor(lengths, device=CPU),
            alive=torch.tensor([slot.alive for slot in ends], device=CPU),
            row=rows,
            lane=torch.tensor([slot.lane for slot in ends], device=CPU),
            episode=torch.tensor([slot.episode for slot in ends], device=CPU),
            policy_version=torch.tensor([version for _, version in taken], device=CPU),
            agent_info=None if self.agent_info is None else self.agent_info[rows],
            env_info=None if self.env_info is None else self.env_info[rows],
            agent_state=state,
            batch_size=[n],
        )
