"""Slots: rows of shared memory through which the data of requests comes from workers, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Unbounded
from steppe.storage import Layout, Storage, StorageHandle, TensorDictBuilder
from steppe_agents.kept_rows import Row
from steppe_agents.trajectories import Trajectories

__all__ = ["Assembly", "Columns", "Piece", "SlotWriter", "Slots", "Stopped"]


class Stopped(Exception):
    """The caller wishes that a request end, while its worker waits for a slot."""


@dataclass(frozen=True)
class Columns:
    """What a step of a request holds.

    Attributes:
        step: the data of one step of one row.
        state: what the agent remembers at the first; empty where that is not kept.
    """

    step: Composite
    state: Composite


class Piece(NamedTuple):
    """A slot that is full, or the last of its row.

    Attributes:
        slot: which one.
        row: of the request, or the lane of a slice.
        lane, episode: as :class:`~steppe.Trajectories` has them.
        length: steps in the slot.
        ends: whether it is the last of its row.
        alive: whether that row can go on.
    """

    slot: int
    row: int
    lane: int
    episode: int
    length: int
    ends: bool
    alive: bool


class Slots:
    """Shared memory ``[n, length]`` for the steps of rows, and what is known of each slot.

    Args:
        columns: what a step holds.
        n: how many slots there are.
        length: steps of each.
        fds: memory of another process to see; taken over. None makes new memory.
    """

    def __init__(self, columns: Columns, n: int, length: int, fds: list[int] | None = None) -> None:
        self.columns, self.n, self.length = columns, n, length
        head = Composite({"full": Unbounded((), dtype=torch.int64), "state": columns.state})
        self.steps = _shared(columns.step, (n, length), None if fds is None else fds[0])
        self.heads = _shared(head, (n,), None if fds is None else fds[1])
        #: 1 where a slot waits to be copied, which its worker sets and the caller clears.
        self.full = self.heads.arrays["full"]
        self.state_keys = [key for key in self.heads.tensors if key != "full"]

    @property
    def fds(self) -> list[int]:
        """Descriptors, for another process."""
        return [self.steps.handle().fd, self.heads.handle().fd]

    @property
    def nbytes(self) -> int:
        """The memory that all slots take, whatever is asked for."""
        return self.steps.layout.nbytes + self.heads.layout.nbytes

    def of_worker(self, worker: int, n_workers: int) -> range:
        """The slots of one worker."""
        return range(self.n * worker // n_workers, self.n * (worker + 1) // n_workers)


def _shared(spec: Composite, rows: tuple[int, ...], fd: int | None) -> Storage:
    if fd is None:
        return Storage(spec, rows, kind="shared")
    return Storage.attach(StorageHandle(spec, rows, Layout.of(spec, rows).nbytes, fd))


class SlotWriter:
    """Writes the steps of rows to slots, in a worker.

    Args:
        slots: all of them.
        own: those of this worker; at least one for each of its lanes.
        tell: sends pieces to the caller.
        pause: waits a little; returns True where the caller wishes that the request end.
    """

    def __init__(
        self, slots: Slots, own: range, tell: Callable[[list[Piece]], None], pause: Callable[[], bool]
    ) -> None:
        self.slots, self._own, self._tell, self._pause = slots, own, tell, pause
        self._columns = [(key, tensor.flatten(0, 1)) for key, tensor in slots.steps.tensors.items()]
        self._in_use: set[int] = set()
        self._pieces: list[Piece] = []
        self._checked = False

    def clear(self) -> None:
        """Forget all rows."""
        self._in_use.clear()
        self._pieces = []

    def drop_running(self) -> None:
        """Forget the rows that have not ended; what was said of them has no use."""
        self._in_use.clear()

    def write(self, frame: TensorDictBase, rows: list[Row]) -> None:
        """Copy a step of some rows ``[k]``.

        Raises:
            SpecError: it has other entries or shapes than a step is to have.
            Stopped: the caller wants no more.
        """
        length = self.slots.length
        places = []
        for row in rows:
            if row.slot is None:
                row.slot, row.in_slot = self._free(), 0
                if row.state is not None and not row.length:
                    for key in self.slots.state_keys:
                        self.slots.heads.tensors[key][row.slot].copy_(row.state.get(key[1:]))
            places.append(row.slot * length + row.in_slot)
            row.in_slot += 1
        at = torch.tensor(places, device=CPU)
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

    def end(self, row: Row, alive: bool) -> None:
        """Hear that a row has ended; its last step has been written."""
        if row.slot is not None:
            self._close(row, ends=True, alive=alive)
        else:  # the slot was full with its last step, and said so
            last = max(i for i, piece in enumerate(self._pieces) if piece.row == row.number)
            self._pieces[last] = self._pieces[last]._replace(ends=True, alive=alive)

    def take(self) -> list[Piece]:
        """Pieces that nobody was told of."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def _close(self, row: Row, *, ends: bool, alive: bool) -> None:
        assert row.slot is not None
        self.slots.full[row.slot] = 1
        self._in_use.discard(row.slot)
        self._pieces.append(Piece(row.slot, row.number, row.lane, row.episode, row.in_slot, ends, alive))
        row.slot = None

    def _free(self) -> int:
        while True:
            for slot in self._own:
                if slot not in self._in_use and not self.slots.full[slot]:
                    self._in_use.add(slot)
                    return slot
            if self._pieces:
                self._tell(self.take())
            if self._pause():
                raise Stopped

    def _check(self, frame: TensorDictBase) -> None:
        rows = frame.batch_size
        expected = {key: tuple(tensor.shape[2:]) for key, tensor in self.slots.steps.tensors.items()}
        found = {key: tuple(frame.get(key).shape[len(rows) :]) for key in frame.keys(True, True)}
        problems = [f"{key!r} is missing" for key in expected if key not in found]
        problems += [f"{key!r} is not declared" for key in found if key not in expected]
        problems += [
            f"{key!r} has shape {found[key]} where specs say {shape}"
            for key, shape in expected.items()
            if key in found and found[key] != shape
        ]
        if problems:
            raise SpecError(f"A step does not hold what environment and policy declare: {'; '.join(problems)}.")


class Assembly:
    """Puts rows together from pieces, in the caller's process.

    Args:
        slots: where they lie.
        agent_info, env_info: of the rows of the request, or of all lanes; None for nothing.
    """

    def __init__(self, slots: Slots, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        self.slots, self.agent_info, self.env_info = slots, agent_info, env_info
        self._running: dict[int, list[tuple[int, dict[Any, torch.Tensor]]]] = {}
        self._states: dict[int, dict[Any, torch.Tensor]] = {}
        self._ended: list[tuple[Piece, int]] = []

    def add(self, pieces: Iterable[Piece], version: int) -> None:
        """Copy pieces, and free their slots."""
        slots = self.slots
        for piece in pieces:
            if piece.row not in self._running:
                heads = slots.heads.tensors
                self._states[piece.row] = {key[1:]: heads[key][piece.slot].clone() for key in slots.state_keys}
            data = {key: tensor[piece.slot, : piece.length].clone() for key, tensor in slots.steps.tensors.items()}
            self._running.setdefault(piece.row, []).append((piece.length, data))
            slots.full[piece.slot] = 0
            if piece.ends:
                self._ended.append((piece, version))

    def take(self) -> Trajectories | None:
        """The rows that have ended since the last time, in their order; None where there are none."""
        taken, self._ended = sorted(self._ended, key=lambda each: each[0].row), []
        if not taken:
            return None
        ends = [piece for piece, _ in taken]
        parts = [self._running.pop(piece.row) for piece in ends]
        states = [self._states.pop(piece.row) for piece in ends]
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
        rows = torch.tensor([piece.row for piece in ends], device=CPU)
        state = None
        if self.slots.state_keys:
            stacked = {key: torch.stack([one[key] for one in states]) for key in states[0]}
            state = TensorDict(
                {key if len(key) > 1 else key[0]: value for key, value in stacked.items()}, batch_size=[n]
            )
        made: Any = Trajectories
        return made(  # type: ignore[no-any-return]
            steps=steps,
            length=torch.tensor(lengths, device=CPU),
            alive=torch.tensor([piece.alive for piece in ends], device=CPU),
            row=rows,
            lane=torch.tensor([piece.lane for piece in ends], device=CPU),
            episode=torch.tensor([piece.episode for piece in ends], device=CPU),
            policy_version=torch.tensor([version for _, version in taken], device=CPU),
            agent_info=None if self.agent_info is None else self.agent_info[rows],
            env_info=None if self.env_info is None else self.env_info[rows],
            agent_state=state,
            batch_size=[n],
        )
