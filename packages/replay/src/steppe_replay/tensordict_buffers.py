"""Buffers of TensorDicts, and buffers with priorities."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase, is_tensor_collection

from steppe.errors import SpecError
from steppe_replay.buffers import ReplayBuffer
from steppe_replay.prioritized import PrioritizedSampler
from steppe_replay.storages import ListStorage, Storage
from steppe_replay.writers import TensorDictRoundRobinWriter

__all__ = ["PrioritizedReplayBuffer", "TensorDictPrioritizedReplayBuffer", "TensorDictReplayBuffer"]


class TensorDictReplayBuffer(ReplayBuffer):
    """A buffer of TensorDicts, whose samples have ``"index"`` and the entries of the sampler.

    >>> import torch
    >>> from steppe import LazyTensorStorage, TensorDictReplayBuffer, make_env
    >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=32)
    >>> _ = buffer.extend(make_env("gym:CartPole-v1").rollout(200, break_when_any_done=False))
    >>> batch = buffer.sample()
    >>> batch["next", "observation"].shape, batch["index"].shape
    (torch.Size([32, 4]), torch.Size([32]))

    Args:
        priority_key: the entry of data and samples from which priorities are read.
        **kwargs: see :class:`ReplayBuffer`.
    """

    default_writer = TensorDictRoundRobinWriter
    adds_info = True

    def __init__(self, *, priority_key: Any = "td_error", **kwargs: Any) -> None:
        self.priority_key = priority_key
        super().__init__(**kwargs)

    def _write(self, data: Any, *, single: bool) -> torch.Tensor:
        index = super()._write(data, single=single)
        if isinstance(self._sampler, PrioritizedSampler) and is_tensor_collection(data):
            priority = data.get(self.priority_key, None)
            n_rows = index.reshape(-1, self._storage.ndim).shape[0]
            # A transform may have written other rows than those of the data.
            if priority is not None and (single or data.batch_size[: self._storage.ndim].numel() == n_rows):
                if not single and self._storage.ndim > 1:
                    order = list(range(priority.ndim))
                    order[0], order[self.dim_extend] = order[self.dim_extend], order[0]
                    priority = priority.permute(order)
                self.update_priority(index, priority.reshape(n_rows, -1))
        return index

    def update_tensordict_priority(self, data: TensorDictBase) -> None:
        """Set the priorities of a sample from its ``priority_key``.

        Raises:
            SpecError: the sample lacks ``"index"`` or the priority, or a priority is negative.
        """
        for key in ("index", self.priority_key):
            if data.get(key, None) is None:
                raise SpecError(
                    f"update_tensordict_priority needs the entry {key!r}; found {sorted(map(str, data.keys()))}."
                )
        index = data.get("index")
        index = index.reshape(-1, self._storage.ndim) if self._storage.ndim > 1 else index.reshape(-1)
        self.update_priority(index, data.get(self.priority_key).reshape(len(index), -1))

    def add(self, data: TensorDictBase) -> Any:
        """Write one row, see :meth:`ReplayBuffer.add`."""
        return super().add(data)


class PrioritizedReplayBuffer(ReplayBuffer):
    """A buffer with a :class:`PrioritizedSampler`.

    >>> import torch
    >>> from steppe import PrioritizedReplayBuffer
    >>> buffer = PrioritizedReplayBuffer(alpha=1.0, beta=0.5, batch_size=1000)
    >>> index = buffer.extend(["rare", "common"])
    >>> buffer.update_priority(index, torch.tensor([1.0, 9.0]))
    >>> 850 < buffer.sample().count("common") < 950
    True

    Args:
        alpha, beta, eps, dtype: see :class:`PrioritizedSampler`.
        storage: where the data is; default ``ListStorage(1000)``.
        reduction: see :class:`PrioritizedSampler`.
        **kwargs: see :class:`ReplayBuffer`.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float32,
        storage: Storage | None = None,
        reduction: str = "max",
        **kwargs: Any,
    ) -> None:
        storage = ListStorage(1000) if storage is None else storage
        sampler = PrioritizedSampler(storage.max_size, alpha, beta, eps, dtype, reduction)
        super().__init__(storage=storage, **{"sampler": sampler, **kwargs})


class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts with a :class:`PrioritizedSampler`; samples have ``"priority_weight"`` and ``"index"``.

    >>> import torch
    >>> from steppe import LazyTensorStorage, TensorDictPrioritizedReplayBuffer
    >>> from tensordict import TensorDict
    >>> storage = LazyTensorStorage(100)
    >>> buffer = TensorDictPrioritizedReplayBuffer(alpha=1.0, beta=1.0, storage=storage, batch_size=8)
    >>> _ = buffer.extend(TensorDict(step=torch.arange(50), batch_size=[50]))
    >>> batch = buffer.sample()
    >>> batch["td_error"] = (batch["step"] == 7).float()  # as a loss computes it
    >>> buffer.update_tensordict_priority(batch)
    >>> sorted(batch.keys())
    ['index', 'priority_weight', 'step', 'td_error']

    Args:
        alpha, beta, eps, reduction: see :class:`PrioritizedSampler`.
        priority_key: the entry from which ``update_tensordict_priority`` reads priorities.
        storage: where the data is; default ``ListStorage(1000)``.
        **kwargs: see :class:`ReplayBuffer`.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        priority_key: Any = "td_error",
        eps: float = 1e-8,
        storage: Storage | None = None,
        reduction: str = "max",
        **kwargs: Any,
    ) -> None:
        storage = ListStorage(1000) if storage is None else storage
        sampler = PrioritizedSampler(storage.max_size, alpha, beta, eps, reduction=reduction)
        super().__init__(priority_key=priority_key, storage=storage, **{"sampler": sampler, **kwargs})
