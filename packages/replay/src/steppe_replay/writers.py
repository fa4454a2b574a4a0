"""Writers: where new data goes."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU
from steppe_replay.storages import Storage
from steppe_replay.tensor_storage import TensorStorage
from steppe_replay.torchrl_arguments import check_others

__all__ = [
    "ImmutableDatasetWriter",
    "RoundRobinWriter",
    "TensorDictMaxValueWriter",
    "TensorDictRoundRobinWriter",
    "Writer",
]


class Writer:
    """Decides which rows new data overwrites.

    >>> import torch
    >>> from steppe import LazyTensorStorage, ReplayBuffer
    >>> from steppe_replay import RoundRobinWriter, Writer
    >>> from tensordict import TensorDict
    >>> class Successes(RoundRobinWriter):
    ...     def extend(self, data, *, single=False):
    ...         return super().extend(data if single else data[data["success"]], single=single)
    >>> issubclass(Successes, Writer)
    True
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), writer=Successes(), batch_size=4)
    >>> _ = buffer.extend(TensorDict(success=torch.tensor([True, False, True]), batch_size=[3]))
    >>> len(buffer)
    2

    Args:
        compilable: without effect.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.

    Attributes:
        storage: where it writes.
    """

    storage: Storage

    def __init__(self, compilable: bool = False, **others: Any) -> None:
        check_others(type(self), {"compilable": compilable, **others})

    def register_storage(self, storage: Storage) -> None:
        """Write to this storage from now on."""
        self.storage = storage

    @abstractmethod
    def extend(self, data: Any, *, single: bool = False) -> torch.Tensor:
        """Write rows, time first; with ``single`` one column without the time dimension.

        Returns:
            The rows ``[n]``, -1 for data that was left out.
        """

    @property
    def write_count(self) -> int:
        """How many rows were written so far."""
        return self.storage.write_count

    def forget(self) -> None:
        """Hear that all rows are gone."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class RoundRobinWriter(Writer):
    """Overwrite the oldest data.

    >>> import torch
    >>> from steppe import LazyTensorStorage, ReplayBuffer, RoundRobinWriter
    >>> from tensordict import TensorDict
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(4), writer=RoundRobinWriter(), batch_size=4)
    >>> _ = buffer.extend(TensorDict(step=torch.arange(4), batch_size=[4]))
    >>> _ = buffer.extend(TensorDict(step=torch.arange(4, 6), batch_size=[2]))
    >>> buffer[:]["step"].sort().values
    tensor([2, 3, 4, 5])
    """

    def extend(self, data: Any, *, single: bool = False) -> torch.Tensor:
        return self.storage.append(data, single=single)


class TensorDictRoundRobinWriter(RoundRobinWriter):
    """Overwrite the oldest data. The buffer adds ``"index"`` to samples of TensorDicts, so this only keeps the name.

    >>> import torch
    >>> from steppe import LazyTensorStorage, TensorDictReplayBuffer, TensorDictRoundRobinWriter
    >>> from tensordict import TensorDict
    >>> storage, writer = LazyTensorStorage(4), TensorDictRoundRobinWriter()
    >>> buffer = TensorDictReplayBuffer(storage=storage, writer=writer, batch_size=4)
    >>> buffer.extend(TensorDict(step=torch.arange(4), batch_size=[4]))
    tensor([0, 1, 2, 3])
    >>> "index" in buffer.sample()
    True
    """


class ImmutableDatasetWriter(Writer):
    """Refuse to write: for data sets that stay as they are.

    >>> import torch
    >>> from steppe import ReplayBuffer
    >>> from steppe_replay import ImmutableDatasetWriter, TensorStorage
    >>> from tensordict import TensorDict
    >>> data = TensorDict(reward=torch.ones(8), batch_size=[8])
    >>> buffer = ReplayBuffer(storage=TensorStorage(data), writer=ImmutableDatasetWriter(), batch_size=4)
    >>> buffer.sample()["reward"]
    tensor([1., 1., 1., 1.])
    >>> buffer.extend(data)
    Traceback (most recent call last):
        ...
    steppe.errors.NotSupported: This buffer is a data set that cannot be written: ...
    """

    def extend(self, data: Any, *, single: bool = False) -> torch.Tensor:
        raise NotSupported("This buffer is a data set that cannot be written: its writer is an ImmutableDatasetWriter.")


class TensorDictMaxValueWriter(Writer):
    """Keep the data with the largest values, and overwrite that with the smallest one.

    >>> import torch
    >>> from steppe import LazyTensorStorage, ReplayBuffer, TensorDictMaxValueWriter
    >>> from tensordict import TensorDict
    >>> writer = TensorDictMaxValueWriter(rank_key="return")
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(2), writer=writer, batch_size=2)
    >>> _ = buffer.extend(TensorDict({"return": torch.tensor([3.0, 9.0, 1.0, 7.0])}, [4]))
    >>> buffer[:]["return"].sort().values
    tensor([7., 9.])

    Args:
        rank_key: the entry with the value of each row; default ``("next", "reward")``.
        reduction: how a value of several numbers, such as the rewards of a trajectory, becomes one: ``"sum"``,
            ``"mean"``, ``"max"``, ``"min"`` or ``"median"``.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.
    """

    def __init__(self, rank_key: Any = None, reduction: str = "sum", **others: Any) -> None:
        super().__init__(**others)
        if reduction not in ("sum", "mean", "max", "min", "median"):
            raise SpecError(
                f"TensorDictMaxValueWriter: reduction is 'sum', 'mean', 'max', 'min' or 'median', found {reduction!r}."
            )
        self.rank_key = ("next", "reward") if rank_key is None else rank_key
        self.reduction = reduction
        #: The value and the row of everything that is kept, smallest value first.
        self._heap: list[tuple[float, int]] = []

    def register_storage(self, storage: Storage) -> None:
        if storage.ndim > 1:
            raise SpecError(
                "TensorDictMaxValueWriter ranks single rows: use a storage with ndim=1, whose rows may be trajectories."
            )
        if isinstance(storage, TensorStorage) and storage.compact:
            raise NotSupported("TensorDictMaxValueWriter replaces single rows, which a compact storage cannot do.")
        super().register_storage(storage)

    def extend(self, data: Any, *, single: bool = False) -> torch.Tensor:
        if not isinstance(data, TensorDictBase):
            raise SpecError(f"TensorDictMaxValueWriter ranks TensorDicts, found {type(data).__name__}.")
        if single:
            data = data.unsqueeze(0)
        value = data.get(self.rank_key, None)
        if value is None:
            raise SpecError(f"TensorDictMaxValueWriter: the data has no entry {self.rank_key!r} to rank by.")
        flat = value.detach().reshape(len(data), -1).double()
        result: Any = getattr(flat, self.reduction)(-1)
        values = (result if isinstance(result, torch.Tensor) else result.values).tolist()
        index = [-1] * len(values)
        room = max(0, self.storage.max_size - len(self._heap))
        if room:
            rows = self.storage.append(data[:room]).tolist()
            index[: len(rows)] = rows
            for number, row in zip(values, rows, strict=False):
                heapq.heappush(self._heap, (number, row))
        at: dict[int, int] = {}
        for i in range(room, len(values)):
            if values[i] > self._heap[0][0]:
                row = self._heap[0][1]
                heapq.heapreplace(self._heap, (values[i], row))
                at[row] = i
        for row, i in at.items():
            for earlier, other in enumerate(index):
                if other == row and earlier != i:
                    index[earlier] = -1
            index[i] = row
        if at:
            self.storage.put(np.fromiter(at, np.int64), data[torch.tensor(list(at.values()), device=CPU)])
        return torch.tensor(index, dtype=torch.int64, device=CPU)

    def forget(self) -> None:
        self._heap = []

    def state_dict(self) -> dict[str, Any]:
        return {"heap": list(self._heap)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._heap = [(float(value), int(row)) for value, row in state_dict["heap"]]
        heapq.heapify(self._heap)
