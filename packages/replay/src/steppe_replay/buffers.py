"""Replay buffers: a storage, a sampler, a writer, and transforms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_tensor_collection
from torch.utils.data import IterableDataset, default_collate

from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import CPU
from steppe_replay import checkpoint
from steppe_replay.buffer_writer import BufferWriter
from steppe_replay.data_order import held_back, over_time, read, time_first, written
from steppe_replay.prefetch import Prefetch
from steppe_replay.row_choice import choose_rows
from steppe_replay.row_index import as_caller_index, as_numpy_index, as_rows
from steppe_replay.samplers import RandomSampler, Sampler
from steppe_replay.storages import ListStorage, Storage
from steppe_replay.tensor_storage import TensorStorage
from steppe_replay.torchrl_arguments import check_others
from steppe_replay.writers import RoundRobinWriter, TensorDictRoundRobinWriter, Writer

__all__ = ["ReplayBuffer"]


class ReplayBuffer:
    """Keep data, and sample it.

    Threads and processes may extend a buffer while it is sampled: a sample never waits for them, and has no row that
    was being written.

    Args:
        storage: where the data is, or a function that makes the storage; default ``ListStorage(1000)``.
        sampler: which rows a sample has; default :class:`RandomSampler`.
        writer: which rows new data overwrites; default :class:`RoundRobinWriter`.
        collate_fn: makes a sample of a list of objects; by default, TensorDicts and tensors are stacked.
        pin_memory: samples are in page-locked memory, for copies to a GPU.
        prefetch: how many samples are made ahead in threads. They were made before what was written since.
        transform: a function of samples, such as a transform of steppe. If it has a method ``inv``, that is called with
            the data of ``extend`` and ``add``.
        transform_factory: a function that makes the transform.
        batch_size: rows in a sample.
        dim_extend: the dimension of the data that is time; default: the last one of the storage.
        generator: draws the random numbers; None: that of torch.
        shared: the storage is in memory that other processes can write.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from steppe_replay import LazyTensorStorage, ReplayBuffer
        >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=4)
        >>> index = buffer.extend(TensorDict({"observation": torch.arange(6.0)}, [6]))
        >>> len(buffer), buffer.sample().batch_size
        (6, torch.Size([4]))
    """

    #: The sampler and the writer of this class, if none is given.
    default_sampler: Callable[[], Sampler] = RandomSampler
    default_writer: Callable[[], Writer] = RoundRobinWriter
    #: Whether samples of TensorDicts have the entries that the sampler adds, and ``"index"``.
    adds_info = False

    def __init__(
        self,
        *,
        storage: Storage | Callable[[], Storage] | None = None,
        sampler: Sampler | Callable[[], Sampler] | None = None,
        writer: Writer | Callable[[], Writer] | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_factory: Callable[[], Callable[[Any], Any]] | None = None,
        batch_size: int | None = None,
        dim_extend: int | None = None,
        generator: torch.Generator | None = None,
        shared: bool = False,
        **others: Any,
    ) -> None:
        name = type(self).__name__
        check_others(type(self), others)
        self._storage: Storage = _made(storage, lambda: ListStorage(1000), Storage)
        self._sampler: Sampler = _made(sampler, self.default_sampler, Sampler)
        self._writer: Writer = _made(writer, self.default_writer, Writer)
        self._writer.register_storage(self._storage)
        self._collate = collate_fn
        self._pin_memory = pin_memory
        self._batch_size = batch_size
        if transform is not None and transform_factory is not None:
            raise TypeError(f"{name} takes transform= or transform_factory=, not both.")
        self._transforms: list[tuple[Callable[[Any], Any], bool]] = []
        if transform_factory is not None:
            transform = transform_factory()
        if transform is not None:
            self.append_transform(transform)
        ndim = self._storage.ndim
        self.dim_extend = ndim - 1 if dim_extend is None else dim_extend
        if not 0 <= self.dim_extend < ndim:
            raise SpecError(f"{name}: dim_extend must be from 0 to {ndim - 1}, found {dim_extend}.")
        if generator is not None:
            self.set_rng(generator)
        if shared:
            self.share()
        #: Held while one thread writes, so that the data of one call stays together, and while one samples.
        self._writing, self._sampling = threading.RLock(), threading.RLock()
        self._prefetch = Prefetch(self._sample_of_default_size, int(prefetch or 0))

    # -- parts ----------------------------------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        """Where the data is."""
        return self._storage

    @property
    def sampler(self) -> Sampler:
        """Which rows a sample has."""
        return self._sampler

    @property
    def writer(self) -> Writer:
        """Which rows new data overwrites."""
        return self._writer

    @property
    def transform(self) -> list[Callable[[Any], Any]]:
        """The transforms, in the order in which samples pass them."""
        return [transform for transform, _ in self._transforms]

    @property
    def batch_size(self) -> int | None:
        """Rows in a sample."""
        return self._batch_size

    def set_sampler(self, sampler: Sampler) -> None:
        """Sample with another sampler."""
        sampler.generator = sampler.generator or self._sampler.generator
        self._sampler = sampler

    def set_writer(self, writer: Writer) -> None:
        """Write with another writer."""
        writer.register_storage(self._storage)
        self._writer = writer

    def set_storage(self, storage: Storage, collate_fn: Callable[[Any], Any] | None = None) -> None:
        """Use another storage."""
        self._storage, self._collate = storage, collate_fn or self._collate
        self._writer.register_storage(storage)
        self._sampler.forget()
        self._writer.forget()

    def set_rng(self, generator: torch.Generator | None) -> None:
        """Draw random numbers from this generator; None: from that of torch."""
        self._sampler.generator = generator

    def append_transform(self, transform: Callable[[Any], Any], *, invert: bool = False) -> ReplayBuffer:
        """Call a transform after the others.

        Args:
            transform: a function of samples; its ``inv``, if it has one, is a function of data that is written.
            invert: call it with data that is written, and its ``inv`` with samples.

        Returns:
            This buffer.
        """
        return self.insert_transform(len(self._transforms), transform, invert=invert)

    def insert_transform(self, index: int, transform: Callable[[Any], Any], *, invert: bool = False) -> ReplayBuffer:
        """Call a transform in front of that at ``index``; see ``append_transform``."""
        if not callable(transform):
            raise TypeError(f"{type(self).__name__}: a transform is a function of TensorDicts, found {transform!r}.")
        self._transforms.insert(index, (transform, invert))
        return self

    # -- writing --------------------------------------------------------------------------------------------------

    @property
    def write_count(self) -> int:
        """How many rows were written so far, those that were overwritten too."""
        return self._writer.write_count

    def add(self, data: Any) -> Any:
        """Write one row, or with several dimensions one time step.

        Returns:
            Its index.
        """
        index = self._write(data, single=True)
        return index[0] if self._storage.lanes == 1 and index.ndim == 1 else index

    def extend(self, data: Any) -> torch.Tensor:
        """Write rows.

        Args:
            data: ``[T]``, ``[P, T]`` or ``[B, P, T]``, as the ``ndim`` of the storage says; for a ListStorage any
                sequence.

        Returns:
            The indices of the rows ``[n]``, with several dimensions ``[n, ndim]``, time first.

        Raises:
            SpecError: the data has other entries, shapes or dtypes than the data before. Nothing was written.
        """
        return self._write(data, single=False)

    def _write(self, data: Any, *, single: bool) -> torch.Tensor:
        data = written(data, self._transforms)
        if is_tensor_collection(data) and 0 in data.batch_size:  # a transform waits for more data
            ndim = self._storage.ndim
            return torch.empty((0,) if ndim == 1 else (0, ndim), dtype=torch.int64, device=CPU)
        return self._store(data, single=single)

    def flush(self) -> int:
        """Write the rows that transforms hold back until more data comes, such as the last of a MultiStepTransform.

        Call it when collecting has ended. Workers that write themselves, see ``writers``, do so when they end.

        Returns:
            How many rows were written.
        """
        n = 0
        for data in held_back(self._transforms):
            n += data.batch_size[: self._storage.ndim].numel()
            self._store(data, single=False)
        return n

    def _store(self, data: Any, *, single: bool) -> torch.Tensor:
        """Write rows that have passed the transforms."""
        if not single:
            data = time_first(data, self._storage.ndim, self.dim_extend)
        with self._writing:
            index = self._writer.extend(data, single=single)
            if not isinstance(self._writer, RoundRobinWriter):
                self._sampler.mark_update(index.numpy())
        return as_caller_index(index, self._storage)

    def empty(self) -> None:
        """Forget all rows."""
        with self._writing, self._sampling:
            self._storage.empty()
            self._writer.forget()
            self._sampler.forget()
            self._prefetch.clear()

    # -- workers --------------------------------------------------------------------------------------------------

    def share(self) -> ReplayBuffer:
        """Move the rows to memory that other processes can write; return this buffer."""
        if not isinstance(self._storage, TensorStorage):
            raise NotSupported(f"A {type(self._storage).__name__} cannot be shared: use LazyTensorStorage.")
        self._storage.share()
        return self

    def writers(self, n: int, example: TensorDictBase | None = None) -> list[BufferWriter] | None:
        """Return what ``n`` workers write with, each on its own, without this process; None if they cannot.

        The rows move to shared memory. Workers overwrite the oldest rows, so the buffer needs a round-robin writer and
        a storage of TensorDicts on the CPU.

        Args:
            n: number of workers.
            example: data of one worker, with the entries that the storage gets if it has none.
        """
        storage = self._storage
        if type(self._writer) not in (RoundRobinWriter, TensorDictRoundRobinWriter) or not isinstance(
            storage, TensorStorage
        ):
            return None
        try:
            with self._writing, self._sampling:
                storage.share()
                if example is not None:
                    # Copies of the transforms, because one that waits for more data would keep the example.
                    copies = [(t.clone() if hasattr(t, "clone") else t, invert) for t, invert in self._transforms]
                    data = time_first(written(example, copies), storage.ndim, self.dim_extend)
                    storage.lay_out(data, example=True)
        except NotSupported:
            return None
        self.flush()  # what comes from now on does not pass through the transforms of this process
        return [BufferWriter(storage, self._transforms, self.dim_extend) for _ in range(n)]

    # -- reading --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        self._attach()
        return len(self._storage)

    def _attach(self) -> None:
        """Take over a layout that a worker has written."""
        if isinstance(self._storage, TensorStorage) and self._storage.is_shared:
            self._storage.attach()

    def sample(self, batch_size: int | None = None, return_info: bool = False) -> Any:
        """Return rows that the sampler chooses.

        Args:
            batch_size: how many; default: that of the buffer.
            return_info: return a dict of what the sampler adds too, such as ``"index"``.

        Returns:
            The sample, or a pair of the sample and the dict.

        Raises:
            StateError: the buffer is empty, or has less than the sampler needs.
        """
        if batch_size is None:
            batch_size = self._batch_size
            if batch_size is None:
                raise SpecError(f"{type(self).__name__}.sample needs batch_size=, here or when the buffer is made.")
        elif isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise SpecError(f"{type(self).__name__}.sample: batch_size must be an int >= 1, found {batch_size!r}.")
        data, info = self._prefetch.next() if batch_size == self._batch_size else self._sample(batch_size)
        return (data, info) if return_info else data

    def _sample_of_default_size(self) -> tuple[Any, dict[Any, Any]]:
        assert self._batch_size is not None
        return self._sample(self._batch_size)

    def _sample(self, batch_size: int) -> tuple[Any, dict[Any, Any]]:
        storage = self._storage
        if storage.ring is None or not storage.ring.begun:
            self._attach()
            if storage.ring is None or not len(storage):
                raise StateError(f"This {type(self).__name__} is empty: extend it before you sample it.")
        elif isinstance(storage, TensorStorage) and storage.is_shared:
            storage.attach()
        with self._sampling:
            index, info, rows = choose_rows(storage, self._sampler, batch_size)
        data = self._collated(rows)
        where: Any = as_caller_index(torch.from_numpy(index), storage)
        # Transforms over time need the marks at the ends of slices: the next slice may be of the same trajectory.
        if isinstance(data, TensorDictBase) and (self.adds_info or over_time(self._transforms)):
            if self.adds_info:
                data.set("index", where)
            for key, value in info.items():
                data.set(key, value)
        if storage.ndim > 1 and not self.adds_info:
            where = where.unbind(-1)
        data = read(data, self._transforms, in_order=self._sampler.in_order)
        if self._pin_memory and is_tensor_collection(data):
            data = data.pin_memory()
        return data, {"index": where, **{_short(key): value for key, value in info.items()}}

    def _collated(self, rows: Any) -> Any:
        if self._collate is not None:
            return self._collate(rows)
        if not isinstance(rows, list):
            return rows
        if rows and is_tensor_collection(rows[0]):
            return torch.stack(rows)
        return default_collate(rows)

    def __getitem__(self, index: Any) -> Any:
        """Return rows: by number, slice, list, mask, or with several dimensions a pair or triple of them.

        With several dimensions the dimensions of the result are those of the data: ``buffer[:]`` is ``[P, T]``. A slice
        leaves out the rows that are overwritten while it is copied.
        """
        self._attach()
        storage = self._storage
        if storage.ring is None:
            raise StateError(f"This {type(self).__name__} is empty.")
        if storage.ndim == 1 or (isinstance(index, torch.Tensor) and index.ndim == 2):
            rows, single = self._taken(index)
            if isinstance(rows, list) and self._collate is not None:
                rows = self._collated(rows)
            return read(rows[0] if single else rows, self._transforms)
        assert isinstance(storage, TensorStorage)
        data = storage.take_all()[0].reshape(-1, *storage.lead)
        return read(time_first(data, storage.ndim, self.dim_extend)[index], self._transforms)

    def _taken(self, index: Any) -> tuple[Any, bool]:
        """Return copies of rows, and whether ``index`` is that of a single one."""
        storage = self._storage
        assert storage.ring is not None
        while True:
            begun = storage.ring.begun
            chosen = as_rows(index, storage) if storage.ndim > 1 else storage.all_rows()[as_numpy_index(index)]
            places = np.atleast_1d(chosen)
            rows = storage.take(places)
            bad = storage.torn(begun, places)
            if bad is None:
                return rows, np.ndim(chosen) == 0
            if isinstance(index, slice):
                kept = np.flatnonzero(~bad).tolist()
                return [rows[i] for i in kept] if isinstance(rows, list) else rows[kept], False

    def __setitem__(self, index: Any, data: Any) -> None:
        """Replace rows."""
        if self._storage.ndim > 1 and not (isinstance(index, torch.Tensor) and index.ndim == 2):
            raise NotSupported("Rows of several dimensions are replaced by their index [n, ndim].")
        rows = (
            as_rows(index, self._storage) if self._storage.ndim > 1 else self._storage.all_rows()[as_numpy_index(index)]
        )
        data = written(data, self._transforms)
        if np.ndim(rows) == 0:
            rows, data = np.atleast_1d(rows), data.unsqueeze(0) if is_tensor_collection(data) else [data]
        with self._writing:
            self._storage.put(rows, data)
            self._sampler.mark_update(rows)

    def __iter__(self) -> Iterator[Any]:
        """Yield samples: without an end, or until the end of an epoch for samplers that have one."""
        if self._batch_size is None:
            raise SpecError(f"{type(self).__name__} needs batch_size= to be iterated over.")
        self._sampler.ran_out = False
        while True:
            if not len(self):
                return
            try:
                data = self.sample()
            except StateError:
                if self._sampler.ran_out or getattr(self._sampler, "drop_last", False):
                    return
                raise
            yield data
            if self._sampler.ran_out:
                self._sampler.ran_out = False
                return

    def __bool__(self) -> bool:
        # bool() would otherwise call __len__, and an empty buffer would be no buffer.
        return True

    def next(self) -> Any:
        """Return a sample, or None if the buffer is empty."""
        return self.sample() if len(self) else None

    def as_torch_dataset(self) -> IterableDataset[Any]:
        """Return a data set of samples: ``DataLoader(dataset, batch_size=None, collate_fn=lambda batch: batch)``.

        torch's own ``collate_fn`` would take a TensorDict apart.
        """
        return _Samples(self)

    def update_priority(self, index: Any, priority: Any) -> None:
        """Set the priorities of rows, if the sampler has any.

        Raises:
            SpecError: a priority is negative. No priority was changed.
        """
        with self._sampling:
            self._sampler.update_priority(as_rows(index, self._storage), priority, self._storage)

    # -- saving ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return everything that ``load_state_dict`` needs: rows, and the state of the sampler and the writer."""
        with self._writing, self._sampling:
            self._attach()
            return {
                "storage": self._storage.state_dict(),
                "sampler": self._sampler.state_dict(),
                "writer": self._writer.state_dict(),
                "batch_size": self._batch_size,
            }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace all rows and states by those of ``state_dict``."""
        with self._writing, self._sampling:
            self.empty()
            self._storage.load_state_dict(state_dict["storage"])
            self._sampler.load_state_dict(state_dict["sampler"])
            self._writer.load_state_dict(state_dict["writer"])
            self._batch_size = state_dict["batch_size"]

    def dumps(self, path: str | Path) -> None:
        """Save this buffer to a folder.

        If the program is killed meanwhile, the folder still has what was saved before.
        """
        checkpoint.save(Path(path), self.state_dict())

    def loads(self, path: str | Path) -> None:
        """Load what ``dumps`` has saved, or the rows in the ``scratch_dir`` of a LazyMemmapStorage.

        Of a program that was killed, the rows are loaded that it had finished.

        Raises:
            StateError: the folder has no buffer.
        """
        self.load_state_dict(checkpoint.load(Path(path), self.state_dict()))

    dump = save = dumps
    load = loads

    def shutdown(self) -> None:
        """End the threads of ``prefetch``."""
        self._prefetch.shutdown()

    def __repr__(self) -> str:
        parts = f"{type(self._storage).__name__}, {self._sampler!r}, {self._writer!r}"
        return f"{type(self).__name__}({len(self)} of {self._storage.max_size} rows, {parts})"

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("_writing", "_sampling"):  # locks
            state.pop(name)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._writing, self._sampling = threading.RLock(), threading.RLock()
        self._writer.register_storage(self._storage)


class _Samples(IterableDataset[Any]):
    """The samples of a buffer as a data set of torch."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self.buffer = buffer

    def __iter__(self) -> Iterator[Any]:
        return iter(self.buffer)


def _made(value: Any, default: Callable[[], Any], kind: type) -> Any:
    if value is None:
        return default()
    made = value if isinstance(value, kind) else value()
    if not isinstance(made, kind):
        raise TypeError(f"Expected a {kind.__name__}, or a function that makes one; found {type(made).__name__}.")
    return made


def _short(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) and len(key) == 1 else key
