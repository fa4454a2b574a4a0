"""VecNormV2: normalize with moving averages of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe.transforms import names_of
from steppe_norm.running import RunningNorm, shared_zeros

__all__ = ["VecNormV2"]


class VecNormV2(RunningNorm):
    """Normalize entries with moving averages over all workers.

    It works like :class:`VecNorm`, with the statistics of TorchRL's class of this name: averages ``loc`` and ``var``
    (of squares), in which each new value has the weight ``1 - decay``, divided by ``1 - decay ** count``.

    >>> from steppe import SerialEnv, TransformedEnv, VecNormV2
    >>> norm = VecNormV2(["observation"], decay=0.99, reduce_batch_dims=True)
    >>> env = TransformedEnv(SerialEnv(4, "gym:Pendulum-v1"), norm)
    >>> data = env.rollout(200, break_when_any_done=False)
    >>> norm.loc["observation"].shape, bool(data["next", "observation"][:, -1].abs().max() < 10)
    (torch.Size([3]), True)

    Args:
        in_keys: entries to normalize.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        lock: context manager held during each update. Default: a ``steppe.workers.SharedLock``.
        stateful: must be True. TorchRL's mode of statistics in the data is not supported.
        decay: factor of the weight of old data for each new row; 1 weighs all data equally.
        eps: lower limit of the standard deviation.
        shared_data: statistics in shared memory, a TensorDict with ``"loc"``, ``"var"`` and ``"count"``, each with an
            entry for each of ``in_keys``.
        reduce_batch_dims: average over all rows of a batch. Must be True around a batch.

    Attributes:
        frozen: whether this transform, but not its clones, stops updating the statistics.
        loc, scale: means and standard deviations, TensorDicts.

    Raises:
        NotSupported: ``stateful`` is False, or the transform is around a batch and ``reduce_batch_dims`` is False.
        SpecError: ``decay``, ``eps`` or ``shared_data`` is invalid, or the environment lacks an entry.
        StateError: the transform is frozen before its first update.
    """

    names = ("loc", "var", "count")
    SEP = ".-|-."

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        *,
        lock: AbstractContextManager[object] | None = None,
        stateful: bool = True,
        decay: float = 0.9999,
        eps: float = 1e-4,
        shared_data: TensorDictBase | None = None,
        reduce_batch_dims: bool = False,
    ) -> None:
        if not stateful:
            raise NotSupported(
                "VecNormV2: stateful=False, statistics of each environment in the data, is not supported: leave it out."
            )
        super().__init__(in_keys, out_keys, lock=lock, decay=decay, eps=eps)
        self.stateful = True
        self.reduce_batch_dims = reduce_batch_dims
        if shared_data is not None:
            for key in self.in_keys:
                parts = {name: shared_data.get((name, *names_of(key)), None) for name in self.names}
                missing = [name for name, part in parts.items() if part is None]
                if missing:
                    raise SpecError(f"VecNormV2: shared_data has no {key!r} in {missing}.")
                self._use_shared(key, parts)

    def _made_by(self, row: tuple[int, ...]) -> str:
        return "shared_data=..."

    def new_parts(self, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
        return {"loc": shared_zeros(shape), "var": shared_zeros(shape), "count": shared_zeros(())}

    def _check_batch(self, key: Any, batch_dims: int) -> None:
        if batch_dims and not self.reduce_batch_dims:
            raise NotSupported(
                "VecNormV2: around a batch, pass reduce_batch_dims=True for one average over its environments. For "
                "separate statistics of each, put the transform inside the batch."
            )

    def update(self, arrays: Any, rows: Any) -> None:
        loc, var, count = arrays
        n = len(rows)
        count += n
        weight = 1 - self.decay**n if self.decay != 1 else n / count.item()
        wide = rows.astype(np.float64)
        loc += weight * (wide.mean(0) - loc)
        var += weight * ((wide * wide).mean(0) - var)

    def mean_and_deviation(self, arrays: Any) -> Any:
        loc, var, count = arrays
        n = count.item()
        if n == 0:
            self.raise_no_data()
        whole = 1 - self.decay**n if self.decay != 1 else 1.0
        variance = np.maximum(var - loc * loc, 0) / whole
        return loc / whole, np.maximum(np.sqrt(variance), self.eps)

    def _state_name(self, key: Any, part: str) -> str:
        return self.SEP.join((part, *names_of(key)))
