"""Read the trajectories of a buffer, a folder or a TensorDict one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import NotSupported, SpecError, StateError
from steppe_replay import checkpoint
from steppe_replay.buffers import ReplayBuffer
from steppe_replay.lazy_storages import LazyMemmapStorage
from steppe_replay.slices import SliceSampler
from steppe_replay.tensor_storage import TensorStorage

__all__ = ["iter_trajectories"]

_IDS = ("collector", "traj_ids")


def iter_trajectories(source: ReplayBuffer | TensorDictBase | str | Path) -> Iterator[TensorDictBase]:
    """Yield the trajectories of some data, one after the other.

    One trajectory is in memory at a time, so the data may be larger than memory; only a folder of
    ``ReplayBuffer.dumps`` is read as a whole.

    Args:
        source: a buffer of TensorDicts; a TensorDict ``[*B, T]`` as collectors yield it; or a folder, which
            ``steppe collect``, ``TensorDict.memmap``, ``ReplayBuffer.dumps`` or a LazyMemmapStorage has written.

    Yields:
        TensorDicts ``[T]``. A trajectory ends where ``("next", "done")`` is True, where ``("collector", "traj_ids")``
        changes, and at the end of the data. The first steps are missing if newer data has overwritten them, also while
        trajectories are read.

    Raises:
        StateError: there is no data.
        SpecError: the data has no ``("next", "done")``.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> from steppe_replay import iter_trajectories
        >>> done = torch.tensor([False, True, False]).unsqueeze(-1)
        >>> data = TensorDict({"step": torch.arange(3), "next": {"done": done}}, [3])
        >>> [steps["step"].tolist() for steps in iter_trajectories(data)]
        [[0, 1], [2]]
    """
    if isinstance(source, (str, Path)):
        yield from _in_folder(Path(source))
    elif isinstance(source, ReplayBuffer):
        storage = source.storage
        if not isinstance(storage, TensorStorage):
            raise NotSupported(f"Trajectories are read from storages of TensorDicts, found {type(storage).__name__}.")
        if storage.is_shared:
            storage.attach()
        yield from _in_storage(storage)
    elif isinstance(source, TensorDictBase):
        yield from _in_data(source)
    else:
        raise TypeError(f"Expected a ReplayBuffer, a TensorDict or a folder, found {type(source).__name__}.")


def _in_folder(folder: Path) -> Iterator[TensorDictBase]:
    if (folder / LazyMemmapStorage.FILE).is_file():
        yield from _in_storage(LazyMemmapStorage.in_folder(folder))
    elif (folder / "meta.json").is_file():
        yield from _in_data(TensorDict.load_memmap(folder))
    else:
        state = checkpoint.load(folder, {})["storage"]
        rows = state["rows"]
        if not isinstance(rows, TensorDictBase):
            raise NotSupported(f"The buffer in {folder} has no TensorDicts, from which trajectories are read.")
        storage = TensorStorage(max_size=len(rows), ndim=1 + len(state["lead"]))
        storage.load_state_dict(state)
        yield from _in_storage(storage)


def _in_storage(storage: TensorStorage) -> Iterator[TensorDictBase]:
    if storage.ring is None or not len(storage):
        raise StateError("There is no data to read trajectories from: the buffer is empty.")
    table = SliceSampler(slice_len=1).table(storage)
    begun = table.begun
    for start, stop, lane in zip(table.starts, table.stops, table.lanes, strict=True):
        steps = np.arange(start, stop)
        index = table.rows_of(steps, np.full(len(steps), lane))
        rows = storage.take(index)
        bad = storage.torn(begun, index)
        if bad is not None:
            rows = rows[int(np.flatnonzero(bad)[-1]) + 1 :]
        if len(rows):
            yield rows


def _in_data(data: TensorDictBase) -> Iterator[TensorDictBase]:
    if not data.batch_size.numel():
        raise StateError("There is no data to read trajectories from: it has no steps.")
    done = data.get(("next", "done"), None)
    if done is None:
        raise SpecError(f"The data has no entry ('next', 'done'), found {sorted(map(str, data.keys()))}.")
    length = data.batch_size[-1]
    rows = data.reshape(-1, length) if data.ndim != 2 else data
    ends = done.reshape(len(rows), length, -1).any(-1)
    ids = data.get(_IDS, None)
    if ids is not None:
        ids = ids.reshape(len(rows), length, -1)[..., 0]
        ends[:, :-1] |= ids[:, 1:] != ids[:, :-1]
    ends[:, -1] = True
    for row, last in zip(rows, ends, strict=True):
        start = 0
        for stop in (torch.nonzero(last).squeeze(-1) + 1).tolist():
            yield row[start:stop]
            start = stop
