"""BufferWriter: what a worker writes its own batches to a buffer with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe_replay.data_order import held_back, time_first, written
from steppe_replay.ring import RingStream
from steppe_replay.tensor_storage import TensorStorage

__all__ = ["BufferWriter"]


class BufferWriter:
    """Extends a buffer from another process, which opens the memory of the storage when it unpickles this object.

    >>> import torch
    >>> from steppe import LazyTensorStorage, ReplayBuffer
    >>> from tensordict import TensorDict
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100, shared=True), batch_size=4)
    >>> example = TensorDict(reward=torch.zeros(5), batch_size=[5])
    >>> (writer,) = buffer.writers(1, example)  # a collector sends it to a worker
    >>> writer.extend(TensorDict(reward=torch.ones(5), batch_size=[5]))
    >>> len(buffer)
    5

    Args:
        storage: a shared storage.
        transforms: the transforms of the buffer, whose inverses change data before it is written.
        dim_extend: the dimension of the data that is time.
    """

    def __init__(
        self, storage: TensorStorage, transforms: list[tuple[Callable[[Any], Any], bool]], dim_extend: int
    ) -> None:
        self.storage, self.transforms, self.dim_extend = storage, transforms, dim_extend
        self._stream: RingStream | None = None

    def extend(self, batch: Any) -> None:
        """Write rows, see :meth:`ReplayBuffer.extend`."""
        data = written(batch, self.transforms)
        if 0 not in data.batch_size:  # otherwise a transform waits for more data
            self._store(data)

    def flush(self) -> None:
        """Write the rows that transforms hold back, because no more data comes."""
        for data in held_back(self.transforms):
            self._store(data)

    def _store(self, data: Any) -> None:
        """Write rows that have passed the transforms."""
        data = time_first(data, self.storage.ndim, self.dim_extend)
        self.storage.attach()
        if self.storage.ring is None:
            self.storage.lay_out(data)
        if self._stream is None:
            assert self.storage.ring is not None
            self._stream = RingStream(self.storage.ring)
        self.storage.append(data, self._stream)
