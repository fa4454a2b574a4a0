"""VecNorm: normalize with the running mean and standard deviation of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.transforms import EnvSpecs, as_key, as_keys, names_of, replace_last
from steppe_norm.running import RunningNorm, shared_zeros

__all__ = ["VecNorm"]


class VecNorm(RunningNorm):
    """Normalize entries with running means and deviations over all workers.

    After each step and reset, the statistics of an entry are updated, and the entry becomes
    ``(value - mean) / standard deviation``, a float of the same shape. The statistics are in shared memory behind a
    lock. To share them, give each worker a clone of a transform with statistics:
    ``lambda: TransformedEnv(make(), norm.clone())``. A transform has statistics if ``shapes`` or ``shared_td`` is
    passed, or as soon as it or one of its clones has been in an environment of this process. One without them raises an
    error in a worker process, because each worker would have its own.

    >>> from steppe import TransformedEnv, VecNorm, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), VecNorm(["observation"]))
    >>> env.rollout(20)["observation"].dtype
    torch.float32

    Args:
        in_keys: entries to normalize. Default: the observations named ``"observation"`` (of groups of agents if the
            root has none) and all rewards.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        shared_td: statistics in shared or memory-mapped memory, from :meth:`build_td_for_shared_vecnorm`.
        lock: context manager held during each update. Default: a ``steppe.workers.SharedLock``. Locks of
            ``multiprocessing`` cannot be sent to workers.
        decay: factor of the weight of old data at each update; 1 weighs all data equally.
        eps: lower limit of the variance and of the standard deviation.
        shapes: shape of the statistics of each of ``in_keys``, the last dimensions of the entry. Default: all
            dimensions after the batch size.
        new_api: False or None. For True, use :class:`VecNormV2`.

    Attributes:
        frozen: whether this transform, but not its clones, stops updating the statistics.
        loc, scale: means and standard deviations, TensorDicts.

    Raises:
        SpecError: ``decay``, ``eps``, ``shapes`` or ``shared_td`` is invalid, or the environment lacks an entry.
        StateError: the transform is frozen before its first update.
    """

    names = ("sum", "ssq", "count")

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        shared_td: TensorDictBase | None = None,
        lock: AbstractContextManager[object] | None = None,
        decay: float = 0.9999,
        eps: float = 1e-4,
        shapes: Sequence[Sequence[int]] | None = None,
        new_api: bool | None = None,
    ) -> None:
        if new_api:
            raise SpecError("VecNorm: new_api=True selects another class in TorchRL. Use VecNormV2 of steppe_norm.")
        super().__init__(in_keys, out_keys, lock=lock, decay=decay, eps=eps)
        self.shapes = None if shapes is None else [tuple(shape) for shape in shapes]
        if self.shapes is not None:
            if in_keys is None or len(self.shapes) != len(self.in_keys):
                raise SpecError(
                    f"VecNorm: shapes must have one shape for each of in_keys, found {self.shapes} and {in_keys}."
                )
            for at, key in enumerate(self.in_keys):
                self._make(at, key, self.shapes[at], torch.get_default_dtype())
        if shared_td is not None:
            self._adopt(shared_td)

    def default_keys(self, specs: EnvSpecs | None) -> list[Any]:
        if specs is None:
            return ["observation", "reward"]
        observed = list(specs.observation.keys(include_nested=True, leaves_only=True))
        named = [key for key in observed if names_of(key)[-1] == "observation"]
        observations = ["observation"] if "observation" in named else named
        return [*observations, *specs.reward.keys(include_nested=True, leaves_only=True)]

    def row_shape(self, at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self.shapes is None else self.shapes[at]

    def new_parts(self, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
        return {"sum": shared_zeros(shape), "ssq": shared_zeros(shape), "count": shared_zeros((1,))}

    def update(self, arrays: Any, rows: Any) -> None:
        total, squares, count = arrays
        if self.decay != 1:
            total *= self.decay
            squares *= self.decay
            count *= self.decay
        if len(rows) == 1:
            row = rows[0].astype(np.float64)
            total += row
            squares += row * row
        else:
            wide = rows.astype(np.float64)
            total += wide.sum(0)
            squares += (wide * wide).sum(0)
        count += len(rows)

    def mean_and_deviation(self, arrays: Any) -> Any:
        total, squares, count = arrays
        n = count.item()
        if n == 0:
            self.raise_no_data()
        mean = total / n
        variance = np.maximum(squares / n - mean * mean, self.eps)
        return mean, np.maximum(np.sqrt(variance), self.eps)

    def _state_name(self, key: Any, part: str) -> str:
        return self.SEP.join(names_of(replace_last(key, f"{names_of(key)[-1]}_{part}")))

    # -- existing shared memory -----------------------------------------------------------------------------------

    def _adopt(self, shared: TensorDictBase) -> None:
        keys = self.in_keys
        for key in keys:
            parts = {}
            for name in self.names:
                where = replace_last(key, f"{names_of(key)[-1]}_{name}")
                part = shared.get(where, None)
                if part is None:
                    shared_keys = sorted(map(str, shared.keys(include_nested=True, leaves_only=True)))
                    raise SpecError(
                        f"VecNorm: shared_td has no {where!r}. It has {shared_keys}. Make it for these keys: "
                        f"VecNorm.build_td_for_shared_vecnorm(env, keys={keys})."
                    )
                parts[name] = part
            self._use_shared(key, parts, torch.get_default_dtype())

    @staticmethod
    def build_td_for_shared_vecnorm(env: Any, keys: Any = None, memmap: bool = False) -> TensorDict:
        """Make empty statistics, for the ``shared_td`` of transforms in several processes.

        Args:
            env: an environment like those to normalize, or a batch of them.
            keys: entries to normalize, ``("next", name)`` or ``name``. Default: the default ``in_keys`` of a VecNorm.
            memmap: use a memory-mapped TensorDict in temporary files, instead of shared memory.

        Returns:
            A TensorDict with ``<name>_sum``, ``<name>_ssq`` and ``<name>_count`` for each entry.

        Raises:
            SpecError: the environment has no such entry.
        """
        specs = EnvSpecs.of(env)
        if keys is None:
            wanted = VecNorm().default_keys(specs)
        else:
            wanted = [as_key(names_of(key)[1:]) if names_of(key)[0] == "next" else key for key in as_keys(keys)]
        data = TensorDict({}, batch_size=[])
        for key in wanted:
            leaf = next(
                (leaf for spec in (specs.observation, specs.reward) if (leaf := spec.get(key, None)) is not None), None
            )
            if leaf is None or leaf.dtype is None:
                env_keys = [*specs.observation.keys(True, True), *specs.reward.keys(True, True)]
                raise SpecError(f"VecNorm: the environment has no numeric entry {key!r}. It has {env_keys}.")
            shape = tuple(leaf.shape[len(specs.batch_size) :])
            for name, size in (("sum", shape), ("ssq", shape), ("count", (1,))):
                data.set(replace_last(key, f"{names_of(key)[-1]}_{name}"), shared_zeros(size))
        return data.memmap_() if memmap else data.share_memory_()
