"""RunningNorm: the base class of normalization with running statistics."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np
import torch
from tensordict import MemoryMappedTensor, NestedKey, TensorDict, TensorDictBase

from steppe.errors import NotSupported, SpecError, StateError
from steppe.specs import Composite, Unbounded
from steppe.transforms import Compose, EnvSpecs, Hooks, RowHooks, Transform, as_key, names_of, set_beside
from steppe.workers import SharedLock
from steppe_norm.observation_norm import ObservationNorm

__all__ = ["RunningNorm", "Statistics", "shared_zeros"]

Array = Any


class Statistics:
    """Statistics of one entry, in shared memory.

    Attributes:
        parts: tensors by name, shared by all processes that have this object.
        shape: shape of the statistics: the last dimensions of the entry.
        dtype: dtype of normalized values.
    """

    def __init__(self, parts: dict[str, torch.Tensor], shape: Sequence[int], dtype: torch.dtype) -> None:
        self.parts, self.shape, self.dtype = parts, tuple(shape), dtype
        self._arrays: list[Array] | None = None

    @property
    def arrays(self) -> list[Array]:
        """Numpy arrays of the same memory, in the order of ``parts``."""
        if self._arrays is None:
            self._arrays = [part.detach().numpy() for part in self.parts.values()]
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": None}


class RunningNorm(Transform):
    """Base class of transforms that normalize with running statistics.

    The statistics are updated at each step and reset. The statistics are created as soon as the specs of the
    environment are known, in memory that clones and workers share. Rows that a step excludes, or a reset does not
    reset, do not count.

    Args:
        in_keys: entries to normalize.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        lock: context manager held during each update. Default: a lock that all processes share.
        decay: factor of the weight of old data at each update.
        eps: lower limit of the standard deviation.

    Attributes:
        frozen: whether this transform, but not its clones, stops updating the statistics.
    """

    writes_done = False
    needs_all_rows = False
    #: Names of the tensors of the statistics, in the order in which subclasses use them.
    names: tuple[str, ...] = ()
    standard_normal = True

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None,
        out_keys: NestedKey | Sequence[NestedKey] | None,
        *,
        lock: AbstractContextManager[object] | None,
        decay: float,
        eps: float,
    ) -> None:
        super().__init__(in_keys, out_keys)
        if not 0 < decay <= 1:
            raise SpecError(f"{self._name}: decay must be above 0 and at most 1 (no decay), found {decay!r}.")
        if not eps > 0:
            raise SpecError(f"{self._name}: eps must be above 0, found {eps!r}.")
        self._lock = SharedLock() if lock is None else lock if isinstance(lock, SharedLock) else _LocalLock(lock)
        self.decay, self.eps = float(decay), float(eps)
        self.frozen = False
        self._stats: dict[Any, Statistics] = {}
        #: The process whose clones share statistics that are made later.
        self._home = os.getpid()

    @property
    def lock(self) -> Any:
        """The lock that is held during each update."""
        return self._lock.lock if isinstance(self._lock, _LocalLock) else self._lock

    @property
    def _name(self) -> str:
        return type(self).__name__

    # -- methods to override ---------------------------------------------------------------------------------------

    def new_parts(self, shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
        """Return empty statistics in shared memory for rows of this shape."""
        raise NotImplementedError

    def update(self, arrays: list[Array], rows: Array) -> None:
        """Update the statistics with rows ``[N, *shape]``, in place."""
        raise NotImplementedError

    def mean_and_deviation(self, arrays: list[Array]) -> tuple[Array, Array]:
        """Return the mean and the standard deviation to normalize with."""
        raise NotImplementedError

    def _made_by(self, row: tuple[int, ...]) -> str:
        """Return the argument with which a transform has statistics from the start, for errors."""
        return f"shapes=[{row}, ...]" if len(self.in_keys) > 1 else f"shapes=[{row}]"

    def row_shape(self, at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the statistics of a key.

        ``at`` is the index of the key, and ``shape`` the shape of its entry.
        """
        return shape

    # -- statistics -----------------------------------------------------------------------------------------------

    def _make(self, at: int, key: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Statistics:
        """Return the statistics of a key, created if there are none yet."""
        row = tuple(self.row_shape(at, shape))
        if row != tuple(shape)[len(shape) - len(row) :]:
            raise SpecError(
                f"{self._name}: the shape {row} for {key!r} must be the last dimensions of the shape {tuple(shape)}."
            )
        stats = self._stats.get(key)
        floats = dtype if dtype.is_floating_point else torch.get_default_dtype()
        if stats is None:
            if os.getpid() != self._home:
                raise SpecError(
                    f"{self._name} came to this worker process without statistics of {key!r}. Workers that make them "
                    f"one by one do not share them. Make the statistics first: {self._name}"
                    f"({self.in_keys}, {self._made_by(row)}). Or make the transform in the function that makes the "
                    "environment, so that each environment has its own."
                )
            stats = self._stats[key] = Statistics(self.new_parts(row), row, floats)
        elif stats.shape != row:
            raise SpecError(f"{self._name}: the statistics of {key!r} have the shape {stats.shape}, the data {row}.")
        stats.dtype = floats
        return stats

    def _known(self, key: Any) -> Statistics:
        stats = self._stats.get(key)
        if stats is None:
            raise StateError(
                f"{self._name}: there are no statistics of {key!r} yet. Append the transform to an environment and "
                "reset it, call it on data, or load a state_dict."
            )
        return stats

    def raise_no_data(self) -> NoReturn:
        """Raise the error for statistics without any data."""
        raise StateError(
            f"{self._name}: the transform is frozen and has no statistics yet. Call unfreeze() before the first "
            "update, or load a state_dict."
        )

    def _run(self, stats: Statistics, rows: Array, counted: Array | None) -> tuple[Array, Array]:
        """Update the statistics, and return mean and standard deviation.

        The caller holds the lock.
        """
        arrays = stats.arrays
        if not self.frozen and (counted is None or len(counted)):
            self.update(arrays, (rows if counted is None else counted).reshape(-1, *stats.shape))
        return self.mean_and_deviation(arrays)

    # -- in environments ------------------------------------------------------------------------------------------

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for key, out_key in self.key_pairs:
            for spec in (specs.observation, specs.reward):
                leaf = spec.get(key, None)
                if leaf is not None:
                    dtype = _float(self._name, key, leaf)
                    set_beside(spec, out_key, Unbounded(leaf.shape, leaf.device, dtype), spec)
                    break
            else:
                self._is_missing(key, specs)
        return specs

    def _is_missing(self, key: Any, specs: EnvSpecs) -> None:
        if not self.missing_tolerance:
            existing = [key for spec in (specs.observation, specs.reward) for key in spec.keys(True, True)]
            raise SpecError(f"{self._name}: the environment has no {key!r} to normalize. It has {existing}.")

    def hooks(self, specs: EnvSpecs) -> Hooks:
        batch_dims = len(specs.batch_size)
        entries = []
        for at, (key, out_key) in enumerate(self.key_pairs):
            leaf = next(
                (spec[key] for spec in (specs.observation, specs.reward) if spec.get(key, None) is not None), None
            )
            if leaf is None:
                self._is_missing(key, specs)
                continue
            self._check_batch(key, batch_dims)
            entries.append((key, out_key, self._make(at, key, tuple(leaf.shape[batch_dims:]), leaf.dtype)))

        def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            return self._normalized(following, batch_dims, td, "_step")

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            return self._normalized(fresh, batch_dims, td, "_reset", tolerant=True)

        rows = RowHooks(
            lambda root, following: self._bind(entries, root, following),
            reads=[key for key, *_ in entries],
            writes=[out_key for _, out_key, _ in entries],
        )
        return Hooks(step=step, reset=reset, reads_root=False, rows=rows)

    def _check_batch(self, key: Any, batch_dims: int) -> None:
        """Raise an error if the transform cannot be around a batch."""

    def _bind(self, entries: list[Any], root: Any, following: Any) -> Any:
        """Return the functions of a step and a reset on rows of arrays."""
        after = [(stats, following.before[key], following[out_key]) for key, out_key, stats in entries]
        fresh = [(stats, root.before[key], root[out_key]) for key, out_key, stats in entries if key in root.before]
        lock, run = self._lock, self._run

        def step() -> bool:
            with lock:
                for stats, source, target in after:
                    mean, deviation = run(stats, source, None)
                    target[...] = (source - mean) / deviation
            return False

        def reset(at: Any) -> None:
            at = list(at)
            with lock:
                for stats, source, target in fresh:
                    rows = source[at]
                    mean, deviation = run(stats, rows, None)
                    target[at] = (rows - mean) / deviation

        return step, reset

    def _normalized(
        self,
        data: TensorDictBase,
        batch_dims: int,
        masks: Any = None,
        mask: str = "",
        *,
        tolerant: bool = False,
        pairs: Any = None,
    ) -> TensorDictBase:
        """Update the statistics and normalize the entries, in place; ``pairs`` are their keys in stored data."""
        with self._lock:
            for at, (key, out_key) in enumerate(pairs or self.key_pairs):
                value = data.get(key, None)
                if value is None:
                    if not (tolerant or self.missing_tolerance):
                        keys = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
                        raise KeyError(f"{self._name}: the data has no entry {key!r}. It has {keys}.")
                    continue
                # The statistics of the reward are the same below "next".
                stats = self._make(at, self.in_keys[at], tuple(value.shape[batch_dims:]), value.dtype)
                rows = value.detach().cpu().numpy()
                rows = rows.reshape(-1, *value.shape[batch_dims:])
                mean, deviation = self._run(stats, rows, _counted(rows, masks, key, mask))
                result = torch.from_numpy(np.asarray((rows - mean) / deviation)).to(value.device, stats.dtype)
                data.set(out_key, result.reshape(value.shape))
        return data

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        return self._normalized(next_tensordict, next_tensordict.batch_dims)

    def _step(self, tensordict: TensorDictBase, next_tensordict: TensorDictBase) -> TensorDictBase:
        return self._normalized(next_tensordict, next_tensordict.batch_dims, tensordict, "_step")

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        dims = tensordict_reset.batch_dims
        return self._normalized(tensordict_reset, dims, tensordict, "_reset", tolerant=True)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Update the statistics and normalize data that comes from no environment.

        Entries that are only below ``"next"``, such as the reward, are read there. Missing entries are skipped.

        Args:
            tensordict: any batch size. Its entries are replaced; tensors are not changed.

        Returns:
            ``tensordict``.

        Raises:
            KeyError: the data has none of ``in_keys``.
        """
        pairs = self.pairs_in(tensordict)
        if all(tensordict.get(key, None) is None for key, _ in pairs):
            keys = sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
            raise KeyError(f"{self._name}: the data has none of {self.in_keys}. Found {keys}.")
        return self._normalized(tensordict, tensordict.batch_dims, tolerant=True, pairs=pairs)

    def denorm(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Undo the normalization with the current statistics.

        Args:
            tensordict: data with entries at ``out_keys``; missing entries are skipped.

        Returns:
            A shallow copy, with the results at ``in_keys``.

        Raises:
            StateError: an entry has no statistics yet.
        """
        data = tensordict.copy()
        for key, out_key in self.key_pairs:
            value = data.get(out_key, None)
            if value is not None:
                mean, deviation = (number.to(value.device) for number in self._numbers(key))
                data.set(key, value * deviation + mean)
        return data

    # -- reading and storing statistics ------------------------------------------------------------------------------

    def freeze(self) -> Any:
        """Stop updating the statistics; returns the transform."""
        self.frozen = True
        return self

    def unfreeze(self) -> Any:
        """Update the statistics again; returns the transform."""
        self.frozen = False
        return self

    def frozen_copy(self) -> Any:
        """Return a frozen transform with a copy of the current statistics.

        Raises:
            StateError: there are no statistics yet.
        """
        twin = self.clone()
        with self._lock:
            twin._stats = {
                key: Statistics(
                    {name: _shared(part.clone()) for name, part in self._known(key).parts.items()},
                    self._known(key).shape,
                    self._known(key).dtype,
                )
                for key in self.in_keys
            }
        return twin.freeze()

    def _numbers(self, key: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and standard deviation of an entry."""
        stats = self._known(key)
        with self._lock:
            arrays = self.mean_and_deviation(stats.arrays)
        mean, deviation = (torch.tensor(array, dtype=stats.dtype, device=torch.device("cpu")) for array in arrays)
        return mean, deviation

    def _gathered(self, which: int) -> TensorDict:
        data = TensorDict({}, batch_size=[])
        for key in self.in_keys:
            data.set(key, self._numbers(key)[which])
        return data

    @property
    def loc(self) -> TensorDict:
        """The means, at ``in_keys``."""
        return self._gathered(0)

    @property
    def scale(self) -> TensorDict:
        """The standard deviations, at ``in_keys``."""
        return self._gathered(1)

    def to_observation_norm(self) -> Any:
        """Return an :class:`ObservationNorm` with the current statistics.

        With several keys, return a Compose of one transform for each key.
        """
        parts = []
        for key, out_key in self.key_pairs:
            loc, scale = self._numbers(key)
            parts.append(ObservationNorm(loc, scale, [key], [out_key], standard_normal=True, eps=self.eps))
        return parts[0] if len(parts) == 1 else Compose(*parts)

    #: Separator of the names of a key in the state_dict.
    SEP = "-<.>-"

    def _state_name(self, key: Any, part: str) -> str:
        raise NotImplementedError

    def get_extra_state(self) -> dict[str, torch.Tensor]:
        """Return a copy of the statistics by name; empty if there are none yet."""
        with self._lock:
            return {
                self._state_name(key, name): part.clone()
                for key, stats in self._stats.items()
                for name, part in stats.parts.items()
            }

    def set_extra_state(self, state: Any) -> None:
        """Load statistics into the memory that all processes share.

        Raises:
            SpecError: a name is missing, or a tensor has another shape.
        """
        state = {} if state is None else state
        for key in self.in_keys if state else ():
            names = {part: self._state_name(key, part) for part in self.names}
            missing = [name for name in names.values() if name not in state]
            if missing:
                raise SpecError(f"{self._name}: the state_dict lacks {missing}. It has {sorted(state)}.")
            loaded = {part: torch.as_tensor(state[name], device=torch.device("cpu")) for part, name in names.items()}
            shape = tuple(loaded[self.names[0]].shape)
            stats = self._stats.get(key)
            if stats is None:
                dtype = loaded[self.names[0]].dtype
                dtype = torch.get_default_dtype() if dtype is torch.float64 else dtype
                stats = self._stats[key] = Statistics(self.new_parts(shape), shape, dtype)
            elif stats.shape != shape:
                raise SpecError(f"{self._name}: the state_dict has {key!r} of shape {shape}, expected {stats.shape}.")
            with self._lock:
                for part, tensor in stats.parts.items():
                    tensor.copy_(loaded[part].reshape(tensor.shape))

    def _use_shared(self, key: Any, parts: dict[str, torch.Tensor], dtype: torch.dtype | None = None) -> None:
        """Use existing shared memory."""
        first = parts[self.names[0]]
        for name, part in parts.items():
            if not (isinstance(part, MemoryMappedTensor) or part.is_shared()):  # type: ignore[no-untyped-call]
                raise SpecError(f"{self._name}: {name} of {key!r} is not in shared memory: call share_memory_() first.")
        self._stats[as_key(key)] = Statistics(parts, first.shape, dtype or first.dtype)

    def _repr_keys(self) -> Any:
        return ("in_keys", "out_keys", "decay", "eps")


class _LocalLock:
    """Wrap a lock that the user passed, which cannot be sent to workers."""

    def __init__(self, lock: Any) -> None:
        if not (hasattr(lock, "__enter__") and hasattr(lock, "__exit__")):
            raise SpecError(f"A lock must be a context manager such as steppe.workers.SharedLock(), found {lock!r}.")
        self.lock = lock

    def __enter__(self) -> None:
        self.lock.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self.lock.__exit__(*exc_info)

    def __getstate__(self) -> Any:
        raise NotSupported(
            f"{self.lock!r} cannot be sent to a worker, whose updates would not be locked. Leave lock out, or pass "
            "steppe.workers.SharedLock()."
        )


def _float(owner: str, key: Any, leaf: Any) -> torch.dtype:
    """Return the dtype of normalized values for a spec."""
    if isinstance(leaf, Composite) or leaf.dtype is None or leaf.dtype is torch.bool:
        raise SpecError(f"{owner}: {key!r} is not a numeric entry: {leaf}.")
    return leaf.dtype if leaf.dtype.is_floating_point else torch.get_default_dtype()


def _counted(rows: Array, masks: Any, key: Any, mask: str) -> Array | None:
    """Return the rows that a mask includes; None for all rows."""
    if masks is None or not mask:
        return None
    names: tuple[Any, ...] = names_of(key)[:-1] if mask == "_reset" else ()
    for depth in range(len(names), -1, -1):
        rows_mask = masks.get((*names[:depth], mask) if depth else mask, None)
        if rows_mask is not None:
            flags = rows_mask.cpu().numpy().reshape(len(rows), -1).any(-1)
            return None if flags.all() else rows[flags]
    return None


def shared_zeros(shape: Sequence[int]) -> torch.Tensor:
    """Return float64 zeros in shared memory, for sums of many values."""
    return _shared(torch.zeros(tuple(shape), dtype=torch.float64, device=torch.device("cpu")))


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    shared: torch.Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return shared
