"""TensorStorage: rows of TensorDicts, one array for each entry."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_non_tensor, is_tensor_collection
from torch import from_numpy

from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, as_path
from steppe.storage import build_td
from steppe_replay.data_order import time_first
from steppe_replay.frames import FrameStore, StackLeaf
from steppe_replay.journal import N_SLOTS, Journal
from steppe_replay.leaves import ArrayLeaf, DeviceLeaf, Leaf, ObjectLeaf, dtype_name
from steppe_replay.memory import FileMemory, Memory, PrivateMemory, Region
from steppe_replay.ring import Ring, RingStream
from steppe_replay.storages import Storage
from steppe_replay.torchrl_arguments import check_others

__all__ = ["TensorStorage", "as_path_tuple"]

#: Bytes that are written at once. A writer that is killed costs the rows that it was writing, if there is no journal.
_CHUNK = 1 << 20
#: With a journal, rows are copied twice: the second time from the cache of the processor. Images that are stored once
#: are compared with each other too, and in few calls of numpy.
_JOURNAL_CHUNK = 1 << 18

Path = tuple[str, ...]


class _Node:
    """A group of entries, as samples are made of it.

    Args:
        size: the dimensions that the group has behind those of rows.
    """

    def __init__(self, size: tuple[int, ...]) -> None:
        self.size = size
        self.leaves: list[tuple[str, Any, Leaf]] = []
        self.groups: list[tuple[str, _Node]] = []

    def group(self, name: str, size: tuple[int, ...]) -> _Node:
        """Return the group of this name, a new one if there is none."""
        for other, node in self.groups:
            if other == name:
                return node
        node = _Node(size)
        self.groups.append((name, node))
        return node


Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def _one_thread(
    method: Callable[Concatenate[TensorStorage, Arguments], Result],
) -> Callable[Concatenate[TensorStorage, Arguments], Result]:
    """Let one thread at a time change the layout: a collector may write while a learner asks for the length."""

    @functools.wraps(method)
    def alone(self: TensorStorage, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with self._layout_lock:
            return method(self, *args, **kwargs)

    return alone


class TensorStorage(Storage):
    """Rows of TensorDicts, one array for each entry.

    The entries, their shapes and dtypes are those of the first data. An entry that comes later is 0 in the rows before,
    and in rows that lack it.

    >>> import torch
    >>> from steppe import ReplayBuffer
    >>> from steppe_replay import TensorStorage
    >>> from tensordict import TensorDict
    >>> demonstrations = TensorDict(observation=torch.ones(8, 3), batch_size=[8])
    >>> buffer = ReplayBuffer(storage=TensorStorage(demonstrations, max_size=100), batch_size=4)
    >>> len(buffer), buffer.sample()["observation"].shape
    (8, torch.Size([4, 3]))

    Args:
        storage: the first rows, a TensorDict; None: the layout is that of the first data that is written.
        max_size: how many rows it holds; default: as many as ``storage`` has.
        device: device of the rows; ``"auto"``: that of the first data.
        ndim: how many leading dimensions of the data count as rows. The last of them is time.
        compact: observations whose frames are stored once, although the ``next`` of a row is mostly the root of the
            following one: a key, or several. A mapping ``{"pixels": 4}`` says how many frames a stack has, as
            CatFrames makes them along the first dimension; each frame is stored once then.
        memory: where the rows are; None: in this process.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.
    """

    def __init__(
        self,
        storage: TensorDictBase | None = None,
        max_size: int | None = None,
        *,
        device: torch.device | str | None = "cpu",
        ndim: int = 1,
        compact: Any = (),
        memory: Memory | None = None,
        **others: Any,
    ) -> None:
        check_others(type(self), others)
        if max_size is None:
            if storage is None:
                raise SpecError(f"{type(self).__name__} needs max_size=, or the first rows.")
            max_size = math.prod(storage.batch_size[:ndim])
        super().__init__(max_size)
        if ndim < 1:
            raise SpecError(f"{type(self).__name__}: ndim must be at least 1, found {ndim}.")
        self.ndim = ndim
        self.device: torch.device | None = None if device == "auto" or device is None else torch.device(device)
        if isinstance(compact, (str, tuple)) and compact and (isinstance(compact, str) or _is_key(compact)):
            compact = [compact]
        stacks = compact if isinstance(compact, Mapping) else dict.fromkeys(compact, 1)
        self.compact: dict[Path, int] = {as_path_tuple(key): int(n) for key, n in stacks.items()}
        self._memory = PrivateMemory() if memory is None else memory
        self._leaves: dict[Path, Any] = {}
        self._journal: dict[Path, ArrayLeaf] = {}
        self._tree = _Node(())
        self._quick = self._most = self._slot_rows = 0
        self._frames: list[FrameStore] = []
        self._stream: RingStream | None = None
        self._layout_lock = threading.RLock()
        self._attach()
        if storage is not None:
            self.append(time_first(storage, ndim, ndim - 1))

    @property
    def is_shared(self) -> bool:
        """Whether workers can write this storage themselves."""
        return self._memory.is_shared

    @property
    def margin(self) -> int:
        """Columns in front of a row that hold frames of it."""
        return max(self.compact.values(), default=0)

    # -- layout ---------------------------------------------------------------------------------------------------

    @_one_thread
    def attach(self) -> bool:
        """Take over the layout, if another process has written it; return whether there is one.

        Rows of workers that were stopped or killed while they wrote them are finished.
        """
        if self._memory.refresh():
            self._attach()
        if self.ring is not None and not self.ring.settled:
            self.ring.finish_others(self._finish_other)
        return self.ring is not None

    def _attach(self) -> None:
        """Make the leaves of the memory's arrays."""
        memory, info = self._memory, self._memory.info
        if not info:
            return
        self.lead = tuple(info["lead"])
        self.lanes = math.prod(self.lead)
        if self.ring is None:
            self.ring = Ring(memory)
            self._stream = RingStream(self.ring)
            self._nodes = {tuple(path): torch.Size(size) for path, size in info["nodes"]}
        columns = self.ring.columns
        n_rows = columns * self.lanes
        if not self._frames:
            for number, (key, shape, dtype, n) in enumerate(info["frames"], 1):
                store = FrameStore(memory, tuple(key), tuple(shape), getattr(torch, dtype), n, n_rows, number)
                self._frames.append(store)
                self.ring.spares.append(store.spare)
                self._leaves[store.key] = StackLeaf(store, False)
                self._leaves[store.next_key] = StackLeaf(store, True)
        self._required = {tuple(path) for path in info["required"]}
        for path, dtype, _ in info["leaves"]:
            path, kind = tuple(path), None if dtype is None else getattr(torch, dtype)
            if path in self._leaves:
                continue
            if kind is None:
                self._leaves[path] = ObjectLeaf(n_rows)
            elif path in memory.arrays:
                self._leaves[path] = ArrayLeaf(memory.arrays[path], kind)
            else:
                shape = next(shape for other, _, shape in info["leaves"] if tuple(other) == path)
                self._leaves[path] = DeviceLeaf(torch.zeros((n_rows, *shape), dtype=kind, device=self.device or CPU))
        self._tree = _Node(self._nodes[()])
        for path, leaf in self._leaves.items():
            node = self._tree
            for depth in range(1, len(path)):
                node = node.group(path[depth - 1], self._nodes[path[:depth]])
            node.leaves.append((path[-1], getattr(leaf, "quick", None), leaf))
        self._needed = self._required | self.compact.keys()
        self._journal = {
            path: ArrayLeaf(memory.arrays[("#journal", *path)], leaf.dtype)
            for path, leaf in self._leaves.items()
            if ("#journal", *path) in memory.arrays
        }
        self._slot_rows = len(next(iter(self._journal.values())).rows) // N_SLOTS if self._journal else 0
        self._most = self._most_columns()
        self._quick = min((getattr(leaf, "most_quick", 1 << 40) for leaf in self._leaves.values()), default=0)

    @_one_thread
    def lay_out(self, data: TensorDictBase, *, example: bool = False) -> None:
        """Write the layout of the first data, time first, unless there is one.

        Args:
            data: the first data.
            example: later data may lack what the policy writes, because it begins with random actions.
        """
        if self.attach():
            return
        if self.device is None:
            self.device = data.device or torch.device("cpu")
        lead = tuple(data.batch_size[1 : self.ndim])
        lanes = math.prod(lead)
        if not lanes or self.max_size < lanes:
            raise SpecError(
                f"{type(self).__name__}(max_size={self.max_size}) cannot hold one time step of data of batch size "
                f"{tuple(data.batch_size)}."
            )
        columns = self.max_size // lanes + self.margin
        n_rows = columns * lanes
        values = _leaves_of(data)
        regions = Ring.regions(columns)
        frames = []
        for number, (key, n) in enumerate(self.compact.items(), 1):
            shape, dtype = self._check_compact(key, n, values)
            frames.append((key, shape, str(dtype).removeprefix("torch."), n))
            regions += FrameStore.regions(key, shape, dtype, n, n_rows, number)
            del values[key], values[("next", *key)]
        new = self._regions(values, n_rows)
        info = {
            "lead": lead,
            "nodes": list(_nodes_of(data, self.ndim)),
            "frames": frames,
            "leaves": [
                (path, None if dtype is None else str(dtype).removeprefix("torch."), shape)
                for path, dtype, shape in new
            ],
            "required": [path for path in values if not example or path[0] == "next"],
        }
        regions += self._array_regions(new, n_rows)
        if self._memory.is_shared:
            regions += _journal_regions(info, lanes, columns)
        with self._memory.lock:
            if not self._memory.refresh() and not self._memory.info:
                self._memory.add(regions, info)
        self._attach()

    def _check_compact(self, key: Path, n: int, values: Mapping[Path, Any]) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and dtype of an observation whose frames are stored once."""
        name = key[0] if len(key) == 1 else key
        for path in (key, ("next", *key)):
            if path not in values:
                raise SpecError(
                    f"compact={name!r} needs the entries {name!r} and {('next', *key)!r}; the data has "
                    f"{sorted(map(str, values))}. A collector leaves the second out with compact_obs=True."
                )
        value = values[key]
        shape = tuple(value.shape[self.ndim :])
        if not isinstance(value, torch.Tensor) or value.dtype is torch.bfloat16 or self.device != torch.device("cpu"):
            raise NotSupported(f"compact={name!r}: frames are stored once only as tensors on the CPU.")
        if n < 1 or not shape or shape[0] % n or values[("next", *key)].shape != value.shape:
            raise SpecError(
                f"compact={name!r}: stacks of {n} frames along the first dimension, found an observation of shape "
                f"{shape}. CatFrames(N={n}, dim=-{max(len(shape), 1)}) makes such stacks."
            )
        return shape, value.dtype

    def _regions(self, values: Mapping[Path, Any], n_rows: int) -> list[tuple[Path, Any, tuple[int, ...]]]:
        """Return path, dtype and shape of a row for each entry."""
        result: list[tuple[Path, Any, tuple[int, ...]]] = []
        for path, value in values.items():
            if isinstance(value, torch.Tensor):
                if value.is_nested or value.layout is not torch.strided:
                    raise NotSupported(f"The entry {path!r} is no dense tensor; a ListStorage keeps any data.")
                result.append((path, value.dtype, tuple(value.shape[self.ndim :])))
            elif self._memory.is_shared:
                raise NotSupported(
                    f"The entry {path!r} is no tensor, so it has no place in shared memory or in a file: leave it out "
                    f"with data.exclude({path!r}), or use LazyTensorStorage in this process."
                )
            else:
                result.append((path, None, ()))
        return result

    def _array_regions(self, new: Sequence[tuple[Path, Any, tuple[int, ...]]], n_rows: int) -> list[Region]:
        if self.device is not None and self.device.type != "cpu":
            return []
        return [Region(path, dtype_name(dtype), (n_rows, *shape)) for path, dtype, shape in new if dtype is not None]

    @_one_thread
    def _extend_layout(self, values: Mapping[Path, Any]) -> None:
        """Add entries that came later."""
        assert self.ring is not None
        n_rows = self.ring.columns * self.lanes
        with self._memory.lock:
            self._memory.refresh()
            info = self._memory.info
            known = {tuple(path) for path, *_ in info["leaves"]}
            new = [each for each in self._regions(values, n_rows) if each[0] not in known]
            if new:
                added = [
                    (path, None if dtype is None else str(dtype).removeprefix("torch."), shape)
                    for path, dtype, shape in new
                ]
                regions = self._array_regions(new, n_rows)
                if self._journal:
                    n = N_SLOTS * self._slot_rows
                    regions += [Region(("#journal", *each.key), each.dtype, (n, *each.shape[1:])) for each in regions]
                self._memory.add(regions, {**info, "leaves": [*info["leaves"], *added]})
        self._attach()

    def _checked(self, data: TensorDictBase, dims: int) -> dict[Path, Any]:
        """Return the entries of data, which fit the layout; the layout grows where there are new ones.

        Args:
            data: the data.
            dims: its leading dimensions.
        """
        values = _leaves_of(data)
        leaves = self._leaves
        new: dict[Path, Any] = {}
        for path, value in values.items():
            leaf = leaves.get(path)
            if leaf is None:
                new[path] = value
            elif leaf.dtype is None or not isinstance(value, torch.Tensor):
                if leaf.dtype is not None or isinstance(value, torch.Tensor):
                    raise SpecError(f"The entry {path!r} of this data is {type(value).__name__}, and was not before.")
            elif value.dtype is not leaf.dtype or value.shape[dims:] != leaf.shape:
                raise SpecError(
                    f"The entry {_named(path)} of this data has rows of shape {tuple(value.shape[dims:])} and dtype "
                    f"{value.dtype}; the storage has shape {tuple(leaf.shape)} and dtype {leaf.dtype}. Nothing was "
                    "written."
                )
        if not self._needed <= values.keys():
            missing = ", ".join(map(_named, sorted(self._needed - values.keys())))
            raise SpecError(f"This data lacks {missing}, which the first data of the storage had. Nothing was written.")
        if new:
            grown = {path[:depth] for path in new for depth in range(1, len(path))}
            if any(path in leaves for path in grown) or any(path in {p[: len(path)] for p in leaves} for path in new):
                raise SpecError(f"Entries {', '.join(map(_named, new))} are groups in this storage, or the reverse.")
            if dims != self.ndim:
                raise SpecError(f"Unknown entries {', '.join(map(_named, new))}.")
            for path in grown - set(self._nodes):
                self._nodes[path] = self._nodes[()]
            self._extend_layout(new)
        return values

    # -- writing --------------------------------------------------------------------------------------------------

    def append(self, data: Any, stream: RingStream | None = None, *, single: bool = False) -> torch.Tensor:
        if not isinstance(data, TensorDictBase):
            if not is_tensor_collection(data):
                raise SpecError(
                    f"{type(self).__name__} stores TensorDicts, found {type(data).__name__}; a ListStorage keeps any "
                    "data."
                )
            data = data.to_tensordict()
        if single:
            data = data.unsqueeze(0)
        if data.batch_dims < self.ndim:
            raise SpecError(
                f"A storage with ndim={self.ndim} takes data with {self.ndim} leading dimensions, found batch size "
                f"{tuple(data.batch_size)}."
            )
        n = data.batch_size[0]
        if self.ring is None:
            self.lay_out(data)
        ring = self.ring
        assert ring is not None
        if data.batch_size[1 : self.ndim] != self.lead:
            raise SpecError(
                f"This storage has {self.lanes} rows in a time step, of shape {self.lead}; found data of batch size "
                f"{tuple(data.batch_size)} (time first). Nothing was written."
            )
        values = self._checked(data, self.ndim)
        sources = {
            path: None if (value := values.get(path)) is None else leaf.source(value)
            for path, leaf in self._leaves.items()
        }
        stream = self._stream if stream is None else stream
        slot = None if stream is None else stream.join(ring)
        done, cells = 0, []
        while done < n:
            size = min(n - done, self._most)
            part = sources if size == n else _part(sources, done, size)
            if slot is not None:
                at = slot * self._slot_rows
                for path, journal in self._journal.items():
                    _write(journal, at, at + size * self.lanes, part[path])
            start, count, follows = ring.reserve(size, stream)
            if slot is not None:
                self._copy_journal(slot, start, count, follows)
            else:
                self._write_columns(part if count == size else _part(sources, done, count), start, count, follows)
            ring.finish(start, count, stream)
            cells += ring.parts(start, start + count)
            done += count
        ranges = [np.arange(first * self.lanes, last * self.lanes) for first, last in cells]
        return torch.from_numpy(ranges[0] if len(ranges) == 1 else np.concatenate([*ranges, np.arange(0)]))

    def _write_columns(
        self, sources: Mapping[Path, Any], start: int, n: int, follows: bool, *, locked: bool = False
    ) -> None:
        """Write reserved columns.

        Args:
            sources: values of all entries by path; None: zeros.
            start: the position of the first column.
            n: number of columns.
            follows: whether the first column follows the column in front of it.
            locked: the caller holds the lock of the memory.
        """
        assert self.ring is not None
        for store in self._frames:
            root, following = sources[store.key], sources[store.next_key]
            store.write(start, n, self.ring.columns, root, following, follows=follows, locked=locked)
        done = 0
        for first, last in self.ring.parts(start, start + n):
            part = sources if last - first == n else _part(sources, done, last - first)
            for path, leaf in self._leaves.items():
                if not isinstance(leaf, StackLeaf):
                    _write(leaf, first * self.lanes, last * self.lanes, part[path])
            done += last - first

    def _copy_journal(self, slot: int, start: int, n: int, follows: bool, *, locked: bool = False) -> None:
        """Copy columns from a slot of the journal to their places."""
        first = slot * self._slot_rows
        rows = slice(first, first + n * self.lanes)
        sources = {path: journal.rows[rows] for path, journal in self._journal.items()}
        if self.lanes > 1:
            sources = {path: part.reshape(n, self.lanes, *part.shape[1:]) for path, part in sources.items()}
        self._write_columns(sources, start, n, follows, locked=locked)

    def _finish_other(self, slot: int, start: int, n: int, follows: bool) -> None:
        """Copy the columns of another writer, which has stopped; see ``Ring.finish_others``."""
        self._copy_journal(slot, start, n, follows, locked=True)

    def _most_columns(self) -> int:
        """Return how many columns are written at once."""
        assert self.ring is not None
        least = [self.ring.columns, *(store.most_columns(self.lanes) for store in self._frames)]
        if self._journal:
            return min(self._slot_rows // self.lanes, *least)
        n_bytes = 0
        for leaf in self._leaves.values():
            if leaf.dtype is not None:
                n_bytes += math.prod(leaf.shape) * leaf.dtype.itemsize
        return min(max(1, _CHUNK // max(1, n_bytes * self.lanes)), *least)

    def put(self, index: np.ndarray, data: Any) -> None:
        if self.compact:
            raise NotSupported("Rows of a compact storage cannot be replaced: other rows may show the same frames.")
        assert self.ring is not None
        values = self._checked(data, 1)
        cells = index // self.lanes
        before = self.ring.stamps[cells]
        fresh = before == 0
        if fresh.any():
            raise IndexError(f"The row {int(index[fresh][0])} was not written yet: extend the buffer.")
        self.ring.stamps[cells] = -abs(before)
        for path, leaf in self._leaves.items():
            if path in values:
                leaf.put(index, values[path])
        self.ring.stamps[cells] = before
        self.ring.edit()

    # -- reading --------------------------------------------------------------------------------------------------

    def take(self, index: np.ndarray) -> TensorDict:
        return self._gather(self._tree, index, len(index) <= self._quick)

    def _gather(self, node: _Node, index: np.ndarray, quick: bool) -> TensorDict:
        """Return a group of rows; ``quick`` where no entry is large."""
        source: dict[str, Any] = {}
        for name, take, leaf in node.leaves:
            # Two calls for each entry: with eight entries, this is half of the time of a sample of vectors.
            source[name] = from_numpy(take(index, 0)) if quick and take is not None else leaf.take(index)
        for name, child in node.groups:
            source[name] = self._gather(child, index, quick)
        return build_td(source, torch.Size((len(index), *node.size)), self._td_device)

    @property
    def _td_device(self) -> torch.device | None:
        """The device of samples; None for the CPU, as in data of a collector."""
        return None if self.device is None or self.device.type == "cpu" else self.device

    def take_entry(self, key: Any, index: np.ndarray) -> torch.Tensor:
        """Return one entry of rows, on the CPU, where samplers choose rows.

        Raises:
            KeyError: there is no such entry.
        """
        if not self.has_entry(key):
            raise KeyError(
                f"There is no entry {key!r} in this storage, which has {', '.join(sorted(map(_named, self._leaves)))}."
            )
        value: torch.Tensor = self._leaves[key if key in self._leaves else as_path_tuple(key)].take(index).cpu()
        return value

    def has_entry(self, key: Any) -> bool:
        """Whether rows have this entry."""
        return key in self._leaves or as_path_tuple(key) in self._leaves  # most keys are paths already

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.n_columns, *(self.lead if self.ring is not None else ())))

    def readable(self, index: np.ndarray) -> np.ndarray | None:
        assert self.ring is not None
        good = super().readable(index)
        if self._frames:
            cells = index // self.lanes
            head = self.ring.begun
            kept = np.ones(len(index), np.bool_) if good is None else good
            if head > self.ring.columns - self.margin:
                # The columns behind the head show frames of columns that it has overwritten.
                kept &= (cells - head) % self.ring.columns >= self.margin - max(0, self.ring.columns - head)
            for store in self._frames:
                kept &= store.readable(index)
            return None if kept.all() else kept
        return good

    def first_whole(self, begun: int) -> int:
        """Return the position of the first column from which on all columns have their frames."""
        assert self.ring is not None
        first = begun - self.ring.columns + self.margin
        for store in self._frames:
            first = store.first_whole(first, begun, self.ring, self.lanes)
        return first

    def torn(self, begun: int, index: np.ndarray) -> np.ndarray | None:
        assert self.ring is not None
        cells = index if self.lanes == 1 else index // self.lanes
        bad = self.ring.torn(begun, cells, self.margin)
        for store in self._frames:
            lost = ~store.readable(index)
            if lost.any():
                bad = lost if bad is None else bad | lost
        return bad

    def empty(self) -> None:
        super().empty()
        for store in self._frames:
            store.spare.clear()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace all rows by those of ``state_dict``."""
        self.empty()
        rows = state_dict["rows"]
        if rows is not None:
            self.append(rows if self.ndim == 1 else rows.reshape(-1, *state_dict["lead"]))
            assert self.ring is not None
            self.ring.relink(state_dict["previous"].numpy())

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {**state, "lead": self.lead if self.ring is not None else ()}

    # -- other processes ------------------------------------------------------------------------------------------

    @_one_thread
    def share(self) -> None:
        """Move the rows to memory that workers write too; nothing happens if they are there.

        Raises:
            NotSupported: the rows are on a device, or are not only tensors.
        """
        if self._memory.is_shared:
            return
        if self.device is not None and self.device.type != "cpu":
            raise NotSupported(f"Workers cannot write a storage on {self.device}: use device='cpu'.")
        private, shared = self._memory, FileMemory()
        if self.ring is not None:
            if any(leaf.dtype is None for leaf in self._leaves.values()):
                raise NotSupported("Workers cannot write a storage with entries that are no tensors.")
            regions = [Region(key, str(array.dtype), tuple(array.shape)) for key, array in private.arrays.items()]
            regions += _journal_regions(private.info, self.lanes, self.ring.columns)
            with shared.lock:
                shared.add(regions, private.info)
            shared.words[:62] = private.words[:62]
            for key in list(private.arrays):
                source, target = private.arrays.pop(key), shared.arrays[key]
                for at in range(0, len(source), 4096):
                    part = source[at : at + 4096]
                    if part.any():  # pages that nobody wrote stay without memory
                        target[at : at + 4096] = part
                del source
            self.ring, self._frames, self._leaves = None, [], {}
        self._memory = shared
        self._attach()

    def __getstate__(self) -> dict[str, Any]:
        if not self._memory.is_shared:
            raise NotSupported(
                f"This {type(self).__name__} is in the memory of its process. Call storage.share(), or ReplayBuffer("
                "shared=True), before it is sent to another one; dumps() saves it."
            )
        names = ("max_size", "ndim", "device", "compact", "_memory")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._leaves, self._journal, self._tree, self._frames, self._stream = {}, {}, _Node(()), [], None
        self._layout_lock = threading.RLock()
        self._attach()


def as_path_tuple(key: Any) -> Path:
    """Return a key as a tuple of names."""
    path = as_path(key)
    return path if isinstance(path, tuple) else (path,)


def _is_key(value: tuple[Any, ...]) -> bool:
    return all(isinstance(name, str) for name in value) and value[:1] != ()


def _named(path: Path) -> str:
    return repr(path[0] if len(path) == 1 else path)


def _journal_regions(info: Mapping[str, Any], lanes: int, columns: int) -> list[Region]:
    """Return the arrays of a journal of the entries of a layout, with the rows of all slots one behind the other."""
    frames = [(path, dtype, shape) for key, shape, dtype, _ in info["frames"] for path in (key, ("next", *key))]
    entries = [(path, getattr(torch, dtype), shape) for path, dtype, shape in [*info["leaves"], *frames]]
    n_bytes = sum(math.prod(shape) * dtype.itemsize for _, dtype, shape in entries) * lanes
    most = max(1, min((_CHUNK if frames else _JOURNAL_CHUNK) // max(1, n_bytes), columns))
    return [
        *Journal.regions(),
        *(Region(("#journal", *path), dtype_name(dtype), (N_SLOTS * most * lanes, *s)) for path, dtype, s in entries),
    ]


def _part(sources: Mapping[Path, Any], start: int, n: int) -> dict[Path, Any]:
    """Return some columns of all entries."""
    return {path: None if source is None else source[start : start + n] for path, source in sources.items()}


def _write(leaf: Leaf, start: int, stop: int, source: Any) -> None:
    if source is not None:
        leaf.write(start, stop, source)
    elif isinstance(leaf, ArrayLeaf):
        leaf.rows[start:stop] = 0
    elif isinstance(leaf, DeviceLeaf):
        leaf.rows[start:stop].zero_()
    elif isinstance(leaf, ObjectLeaf):
        leaf.rows[start:stop] = [None] * (stop - start)


def _leaves_of(data: Any, path: Path = ()) -> dict[Path, Any]:
    """Return the entries of data by path."""
    leaves: dict[Path, Any] = {}
    for name, value in data.items():
        if isinstance(value, torch.Tensor) or is_non_tensor(value) or not is_tensor_collection(value):
            leaves[(*path, name)] = value
        else:
            leaves.update(_leaves_of(value, (*path, name)))
    return leaves


def _nodes_of(data: Any, dims: int, path: Path = ()) -> Iterator[tuple[Path, tuple[int, ...]]]:
    """Yield the path of each group of data, and the dimensions that it has behind those of rows."""
    yield path, tuple(data.batch_size[dims:])
    for name, value in data.items():
        if is_tensor_collection(value) and not is_non_tensor(value):
            yield from _nodes_of(value, dims, (*path, name))
