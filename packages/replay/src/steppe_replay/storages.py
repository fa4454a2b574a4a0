"""Storage: where a replay buffer keeps its data; ListStorage: a list of any objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import is_tensor_collection
from torch.utils._pytree import tree_map

from steppe.errors import SpecError
from steppe.specs import CPU
from steppe_replay.memory import PrivateMemory
from steppe_replay.ring import Ring, RingStream
from steppe_replay.torchrl_arguments import check_others

__all__ = ["ListStorage", "Storage"]


class Storage(ABC):
    """Rows of data: transitions, or whatever a row of the data is.

    >>> import torch
    >>> from steppe import LazyTensorStorage
    >>> from steppe_replay import Storage
    >>> from tensordict import TensorDict
    >>> storage = LazyTensorStorage(4)
    >>> index = storage.append(TensorDict(step=torch.arange(6), batch_size=[6]))
    >>> isinstance(storage, Storage), len(storage), storage.write_count
    (True, 4, 6)
    >>> storage.take(storage.by_age())["step"]
    tensor([2, 3, 4, 5])

    Args:
        max_size: how many rows it holds; the oldest ones are overwritten.

    Attributes:
        ndim: how many leading dimensions of the data count as rows: 1 for ``[T]``, 2 for ``[P, T]``, 3 for
            ``[B, P, T]``.
        lanes: rows in a column, one for each environment; 1 with one dimension.
        ring: which columns hold data; None before there is a layout.
    """

    ndim = 1
    lanes = 1
    ring: Ring | None = None

    def __init__(self, max_size: int) -> None:
        if isinstance(max_size, bool) or not isinstance(max_size, (int, np.integer)) or max_size < 1:
            raise SpecError(f"{type(self).__name__}: max_size must be a whole number >= 1, found {max_size!r}.")
        self.max_size = int(max_size)

    @abstractmethod
    def append(self, data: Any, stream: RingStream | None = None, *, single: bool = False) -> torch.Tensor:
        """Write data after that which was written last.

        Args:
            data: rows, time first; with ``single`` one column without the time dimension.
            stream: the writer, if it is not the owner of the storage.
            single: see above.

        Returns:
            The indices of the rows, ``[n]``, each ``column * lanes + lane``.
        """

    @abstractmethod
    def take(self, index: np.ndarray) -> Any:
        """Return copies of rows.

        Args:
            index: valid indices of rows.
        """

    @abstractmethod
    def put(self, index: np.ndarray, data: Any) -> None:
        """Overwrite single rows, which may not have been written before."""

    @property
    def shape(self) -> torch.Size:
        """The sizes of the dimensions of rows, time first."""
        return torch.Size((self.n_columns,))

    @property
    def n_columns(self) -> int:
        """How many columns there are in all."""
        return 0 if self.ring is None else self.ring.columns

    @property
    def write_count(self) -> int:
        """How many rows were written so far, those that were overwritten too."""
        return 0 if self.ring is None else self.ring.finished * self.lanes

    def __len__(self) -> int:
        return 0 if self.ring is None else min(self.ring.n_filled() * self.lanes, self.max_size)

    # -- reading while others write -------------------------------------------------------------------------------

    def readable(self, index: np.ndarray) -> np.ndarray | None:
        """Return which rows can be read; None if all can."""
        assert self.ring is not None
        return self.ring.readable(index if self.lanes == 1 else index // self.lanes)

    def torn(self, begun: int, index: np.ndarray) -> np.ndarray | None:
        """Return which rows a writer has begun since the ring had begun so many columns; None if none."""
        assert self.ring is not None
        return self.ring.torn(begun, index if self.lanes == 1 else index // self.lanes)

    def all_rows(self) -> np.ndarray:
        """Return the indices of all rows that can be read, in their order in memory."""
        if self.ring is None:
            return np.empty(0, np.int64)
        index = np.arange(self.ring.n_used * self.lanes)
        good = self.readable(index)
        return index if good is None else index[good]

    def empty(self) -> None:
        """Forget all rows."""
        if self.ring is not None:
            self.ring.clear()

    def take_all(self, *, by_age: bool = False) -> tuple[Any, np.ndarray]:
        """Copy all finished columns, without those that writers overwrite during the copy.

        Args:
            by_age: oldest first; otherwise in their order in memory.

        Returns:
            The rows, and for each column the place among them of the one that it follows, -1 if there is none.
        """
        ring, lanes = self.ring, self.lanes
        assert ring is not None
        begun = ring.begun
        index = self.by_age() if by_age else self.all_rows()
        if lanes > 1:  # some rows of a column may have lost their frames
            index = index[np.bincount(index // lanes, minlength=ring.columns)[index // lanes] == lanes]
        previous = ring.previous(index[::lanes] // lanes) if by_age else np.full(len(index) // lanes, -1)
        rows = self.take(index)
        bad = self.torn(begun, index)
        if bad is None:
            return rows, previous
        good = ~bad.reshape(-1, lanes).any(1)
        places = np.where(good, good.cumsum() - 1, -1)
        previous = np.where(previous >= 0, places[previous], -1)[good]
        kept = np.flatnonzero(np.repeat(good, lanes))
        rows = [rows[i] for i in kept.tolist()] if isinstance(rows, list) else rows[torch.from_numpy(kept)]
        return rows, previous

    def state_dict(self) -> dict[str, Any]:
        """Return all rows, oldest first, which of them follow each other, and how many were written."""
        if self.ring is None or not self.ring.n_filled():
            return {"rows": None, "write_count": self.write_count}
        rows, previous = self.take_all(by_age=True)
        return {"rows": rows, "previous": torch.from_numpy(previous), "write_count": self.write_count}

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace all rows by those of ``state_dict``."""

    def by_age(self) -> np.ndarray:
        """Return the indices of all rows that can be read, oldest first."""
        index = self.all_rows()
        if self.ring is None or not len(index):
            return index
        stamps = self.ring.stamps[index // self.lanes]
        return index[np.argsort(stamps, kind="stable")[np.count_nonzero(stamps < 0) :]]


class ListStorage(Storage):
    """A list of any objects.

    >>> from steppe_replay import ListStorage, ReplayBuffer
    >>> buffer = ReplayBuffer(storage=ListStorage(10), batch_size=1, collate_fn=list)
    >>> _ = buffer.extend(["a", "b"])
    >>> len(buffer)
    2

    Args:
        max_size: how many objects; None: no limit.
        device: where tensors and TensorDicts are moved; None: they stay where they are.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.
    """

    def __init__(
        self, max_size: int | None = None, *, device: torch.device | str | int | None = None, **others: Any
    ) -> None:
        check_others(type(self), others)
        super().__init__(1 << 40 if max_size is None else max_size)
        self.device = device
        self._items: list[Any] = []
        self._grow(1024)

    def _grow(self, columns: int) -> None:
        """Make room for more objects, before the list has been full."""
        memory = PrivateMemory()
        memory.add(Ring.regions(min(columns, self.max_size)), {})
        ring = Ring(memory)
        if self.ring is not None:
            memory.words[:] = self.ring.memory.words
            for name in ("stamps", "breaks", "links"):
                getattr(ring, name)[: self.ring.columns] = getattr(self.ring, name)
            ring.edit()
        else:
            self._stream = RingStream(ring)
        self.ring = ring

    def append(self, data: Any, stream: RingStream | None = None, *, single: bool = False) -> torch.Tensor:
        if self.device is not None:
            data = tree_map(lambda each: each.to(self.device) if hasattr(each, "to") else each, data)
        if single:
            items = [data]
        elif is_tensor_collection(data) or isinstance(data, torch.Tensor):
            items = list(data.unbind(0))
        else:
            items = list(data)
        assert self.ring is not None
        while self.ring.begun + len(items) > self.ring.columns < self.max_size:
            self._grow(2 * max(self.ring.columns, len(items)))
        cells = []
        for item in items:
            start, n, _ = self.ring.reserve(1, self._stream)
            cell = start % self.ring.columns
            if cell == len(self._items):
                self._items.append(item)
            else:
                self._items[cell] = item
            self.ring.finish(start, n)
            cells.append(cell)
        return torch.tensor(cells, dtype=torch.int64, device=CPU)

    def take(self, index: np.ndarray) -> list[Any]:
        return [self._items[i] for i in index.tolist()]

    def put(self, index: np.ndarray, data: Any) -> None:
        assert self.ring is not None
        for i, item in zip(index.tolist(), data, strict=True):
            if i >= len(self._items):
                raise IndexError(f"ListStorage has {len(self._items)} items, index {i} is not among them.")
            self._items[i] = item
        self.ring.edit()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace all items by those of ``state_dict``."""
        self.empty()
        self._items = []
        if state_dict["rows"] is not None:
            self.append(state_dict["rows"])

    def empty(self) -> None:
        super().empty()
        self._items = []
