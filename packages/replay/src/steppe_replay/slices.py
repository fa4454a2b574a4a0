"""Samplers of slices: several consecutive steps of trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steppe.errors import NotSupported, SpecError, StateError
from steppe_replay.prioritized import PrioritizedSampler
from steppe_replay.samplers import Info, Sampler
from steppe_replay.storages import Storage
from steppe_replay.tensor_storage import TensorStorage, as_path_tuple
from steppe_replay.torchrl_arguments import check_others
from steppe_replay.trajectory_table import TrajectoryTable

__all__ = ["PrioritizedSliceSampler", "SliceSampler", "SliceSamplerWithoutReplacement"]


#: Draws of first steps of which some begin no slice; afterwards those that do are listed.
_DRAWS = 20


class SliceSampler(Sampler):
    """Choose trajectories with equal probability, and in each a slice with equal probability among its slices.

    A sample of ``batch_size`` rows has ``num_slices`` slices, one after the other. A slice crosses neither the end of a
    trajectory nor the place where the buffer is being written. The end of each slice is marked in ``truncated_key``.

    >>> from steppe import LazyTensorStorage, ReplayBuffer, SliceSampler
    >>> from steppe_testing import CountingEnv
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=SliceSampler(slice_len=4), batch_size=8)
    >>> _ = buffer.extend(CountingEnv(max_steps=5).rollout(20, break_when_any_done=False))
    >>> slices = buffer.sample().reshape(2, 4)
    >>> steps = slices["observation"].squeeze(-1)
    >>> (steps.diff(dim=1) == 1).all()  # no slice crosses the end of an episode
    tensor(True)

    Args:
        num_slices: slices in a sample; or
        slice_len: steps of a slice.
        end_key: the entry that is True at the last step of a trajectory; default ``("next", "done")``.
        end_keys: several such entries.
        traj_key: the entry with the number of the trajectory of each step, instead of an end. Without these arguments,
            ``("collector", "traj_ids")`` is used if the data has it.
        trajectory_key: another name of ``traj_key``.
        ends: ``[n]`` bool, the ends of the rows of a buffer that does not change, instead of an entry.
        trajectories: ``[n]`` numbers of the trajectories of such a buffer.
        cache_values: without effect: what is known of trajectories is always kept, and kept up to date.
        truncated_key: the entry that is set to True at the last step of each slice, as is the ``done`` beside it; None:
            set nothing.
        strict_length: False: take shorter trajectories too, whole. The sample has fewer rows then.
        span: True, or a number of steps: slices may begin before the beginning of a trajectory, or end after its end,
            and are cut there. A pair for the left and the right.

    Raises:
        SpecError: arguments contradict each other.
    """

    in_order = True

    def __init__(
        self,
        *,
        num_slices: int | None = None,
        slice_len: int | None = None,
        end_key: Any = None,
        end_keys: Sequence[Any] | None = None,
        traj_key: Any = None,
        trajectory_key: Any = None,
        ends: torch.Tensor | None = None,
        trajectories: torch.Tensor | None = None,
        cache_values: bool = False,
        truncated_key: Any = ("next", "truncated"),
        strict_length: bool = True,
        span: bool | int | tuple[bool | int, bool | int] = False,
        **others: Any,
    ) -> None:
        name = type(self).__name__
        check_others(type(self), others)
        traj_key = trajectory_key if traj_key is None else traj_key
        if (num_slices is None) == (slice_len is None):
            raise SpecError(f"{name} takes either num_slices= or slice_len=.")
        for label, value in (("num_slices", num_slices), ("slice_len", slice_len)):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise SpecError(f"{name}: {label} must be a whole number >= 1, found {value!r}.")
        sources = [("end_key", end_key), ("end_keys", end_keys), ("traj_key", traj_key), ("ends", ends)]
        given = [label for label, value in [*sources, ("trajectories", trajectories)] if value is not None]
        if len(given) > 1:
            raise SpecError(f"{name} takes one of {', '.join(given)}.")
        self.num_slices, self.slice_len = num_slices, slice_len
        self.end_keys = [end_key] if end_key is not None else list(end_keys) if end_keys is not None else None
        self.traj_key, self.truncated_key, self.strict_length = traj_key, truncated_key, strict_length
        path = () if truncated_key is None else as_path_tuple(truncated_key)
        #: The entries that mark the ends of slices: truncated, and done and terminated beside it.
        self._marks = [path, *((*path[:-1], name) for name in ("done", "terminated"))]
        self.span = span if isinstance(span, tuple) else (span, span)
        self.cache_values = cache_values
        self._fixed = ends if ends is not None else trajectories
        self._fixed_ends = ends is not None
        self._table: TrajectoryTable | None = None
        self._version, self._length = -1, 0

    # -- trajectories ---------------------------------------------------------------------------------------------

    def table(self, storage: Storage) -> TrajectoryTable:
        """Return the trajectories of a storage, up to date."""
        if not isinstance(storage, TensorStorage):
            raise SpecError(f"{type(self).__name__} needs a storage of TensorDicts, found {type(storage).__name__}.")
        if self._table is None or self._table.storage is not storage or self._table.ring is not storage.ring:
            end_keys, traj_key = self.end_keys, self.traj_key
            if self._fixed is not None:
                self._table = _FixedTable(storage, self._fixed, ends=self._fixed_ends)
            else:
                if end_keys is None and traj_key is None:
                    traj_key = next(
                        (key for key in (("collector", "traj_ids"), ("traj_ids",)) if storage.has_entry(key)), None
                    )
                self._table = TrajectoryTable(storage, end_keys or [("next", "done")], traj_key)
        self._table.update()
        return self._table

    def lengths_of(self, batch_size: int) -> tuple[int, int]:
        """Return the number of slices of a sample, and the steps of each."""
        of, name = (self.num_slices, "num_slices") if self.num_slices is not None else (self.slice_len, "slice_len")
        assert of is not None
        if batch_size % of:
            raise SpecError(
                f"{type(self).__name__}({name}={of}): batch_size must be a multiple of {of}, found {batch_size}."
            )
        other = batch_size // of
        return (of, other) if self.num_slices is not None else (other, of)

    def prepared(self, table: TrajectoryTable, length: int) -> None:
        """Compute once, for many samples, which trajectories have slices and how many."""
        if self._version == table.version and self._length == length:
            return
        lengths = table.stops - table.starts
        least = length if self.strict_length else 1
        left = _span(self.span[0], length)
        right = _span(self.span[1], length)
        if left or right:
            least = 1
        self._usable = np.flatnonzero(lengths >= least)
        usable = lengths[self._usable]
        self._count = np.maximum(usable - length + left + right + 1, 1)
        self._begin = table.starts[self._usable] - left
        self._low, self._high, self._lane = (
            table.starts[self._usable],
            table.stops[self._usable],
            table.lanes[self._usable],
        )
        self._version, self._length = table.version, length

    def sample(self, storage: Storage, batch_size: int) -> tuple[np.ndarray, Info]:
        n, length = self.lengths_of(batch_size)
        table = self.table(storage)
        self.prepared(table, length)
        if not len(self._usable):
            longest = int((table.stops - table.starts).max(initial=0))
            raise StateError(
                f"{type(self).__name__}: no trajectory of this buffer has {length} steps; the longest has {longest}. "
                "Sample shorter slices, extend the buffer first, or pass strict_length=False."
            )
        which = self.trajectories(n)
        n = len(which)  # fewer at the end of an epoch
        # A product that is rounded up to the count is brought back by minimum().
        offset = np.minimum((self.uniform(n) * self._count[which]).astype(np.int64), self._count[which] - 1)
        start = self._begin[which] + offset
        return self.rows(storage, start, np.full(n, length), which)

    def trajectories(self, n: int) -> np.ndarray:
        """Choose ``n`` of the usable trajectories."""
        return self.integers(len(self._usable), n)

    def rows(
        self, storage: Storage, start: np.ndarray, length: np.ndarray, which: np.ndarray
    ) -> tuple[np.ndarray, Info]:
        """Return the rows of slices, cut at the ends of their trajectories."""
        assert self._table is not None
        lanes, size = storage.lanes, self._length
        cut = not self.strict_length or any(self.span)
        if cut:
            stop = np.minimum(start + length, self._high[which])
            start = np.maximum(start, self._low[which])
            length = stop - start
            ends = length.cumsum()
            steps = np.arange(ends[-1]) - np.repeat(ends - length, length)
            steps += np.repeat(start, length)
            lane = np.repeat(self._lane[which], length)
            last = ends - 1
        else:
            steps = (start[:, None] + np.arange(size)).ravel()
            lane = np.repeat(self._lane[which], size if lanes > 1 else 0)
            last = np.arange(size - 1, len(steps), size)
        index = self._table.rows_of(steps, lane)
        return index, self.marks(storage, index, last)

    def marks(self, storage: Storage, index: np.ndarray, last: np.ndarray) -> Info:
        """Return the entries that mark the last step of each slice."""
        if self.truncated_key is None:
            return {}
        assert isinstance(storage, TensorStorage)
        path, done_key, terminated_key = self._marks
        shape = (len(index), 1)
        truncated = np.zeros(shape, np.bool_)
        truncated[last] = True
        info: Info = {path: torch.from_numpy(truncated)}
        if storage.has_entry(done_key):
            done = storage.take_entry(done_key, index)
            if done.shape != shape:
                info[path] = info[path].expand(done.shape).contiguous()
            if storage.has_entry(path):
                info[path] |= storage.take_entry(path, index)
            info[done_key] = done | info[path]
        else:
            info[done_key] = info[path].clone()
        if not storage.has_entry(terminated_key):
            info[terminated_key] = torch.zeros_like(info[path])
        return info

    def again(
        self, storage: Storage, index: np.ndarray, info: Info, bad: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Info] | None:
        if not self.strict_length or any(self.span):
            return None
        length = self._length
        slices = np.flatnonzero(bad.reshape(-1, length).any(1))
        places = (slices[:, None] * length + np.arange(length)).ravel()
        n_slices = self.num_slices
        try:
            if n_slices is not None:
                self.num_slices = len(slices)
            rows, entries = self.sample(storage, len(places))
        finally:
            self.num_slices = n_slices
        return places, rows, entries

    def forget(self) -> None:
        self._table, self._version = None, -1

    def mark_update(self, index: np.ndarray) -> None:
        self._version = -1

    def __repr__(self) -> str:
        size = f"num_slices={self.num_slices}" if self.num_slices is not None else f"slice_len={self.slice_len}"
        return f"{type(self).__name__}({size}, strict_length={self.strict_length})"


class SliceSamplerWithoutReplacement(SliceSampler):
    """Choose each trajectory once in an epoch, and in each a slice with equal probability.

    >>> from steppe import LazyTensorStorage, ReplayBuffer, SliceSamplerWithoutReplacement
    >>> from steppe_testing import CountingEnv
    >>> sampler = SliceSamplerWithoutReplacement(slice_len=5, shuffle=False)
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=sampler, batch_size=10)
    >>> index = buffer.extend(CountingEnv(max_steps=5).rollout(20, break_when_any_done=False))
    >>> [batch["observation"].flatten().int().tolist() for batch in buffer]
    [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]]

    Args:
        drop_last: leave out the trajectories at the end of an epoch that are fewer than ``num_slices``.
        shuffle: False: in the order in which they were written.
        **kwargs: see :class:`SliceSampler`.
    """

    def __init__(self, *, drop_last: bool = False, shuffle: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.drop_last, self.shuffle = drop_last, shuffle
        self._order = np.empty(0, np.int64)
        self._epoch = -1
        self._ran_out = False

    @property
    def ran_out(self) -> bool:
        return self._ran_out

    @ran_out.setter
    def ran_out(self, value: bool) -> None:
        self._ran_out = value

    def trajectories(self, n: int) -> np.ndarray:
        count = len(self._usable)
        # Trajectories that came meanwhile have other numbers: they begin another epoch.
        if not len(self._order) or self._epoch != self._version:
            if count < n:
                raise StateError(
                    f"{type(self).__name__}: a sample of {n} slices without replacement needs as many trajectories, "
                    f"and there are {count} that are long enough. Sample fewer, or extend the buffer first."
                )
            self._order = self.permutation(count) if self.shuffle else np.arange(count)
            self._epoch = self._version
        which, self._order = self._order[:n], self._order[n:]
        self._ran_out = len(self._order) < (n if self.drop_last else 1)
        if self._ran_out:
            self._order = np.empty(0, np.int64)
        return which

    def forget(self) -> None:
        super().forget()
        self._order, self._ran_out = np.empty(0, np.int64), False


class PrioritizedSliceSampler(SliceSampler, PrioritizedSampler):
    """Choose slices in proportion to the priority of their first step.

    >>> import torch
    >>> from steppe import LazyTensorStorage, PrioritizedSliceSampler, ReplayBuffer
    >>> from steppe_testing import CountingEnv
    >>> sampler = PrioritizedSliceSampler(100, alpha=1.0, beta=1.0, slice_len=3)
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=sampler, batch_size=6)
    >>> index = buffer.extend(CountingEnv(max_steps=5).rollout(20, break_when_any_done=False))
    >>> buffer.update_priority(index, (index == 11).float())
    >>> buffer.sample()["observation"].reshape(2, 3)
    tensor([[1., 2., 3.],
            [1., 2., 3.]])

    Args:
        max_capacity: rows of the storage.
        alpha, beta, eps, dtype, reduction, max_priority_within_buffer: see :class:`PrioritizedSampler`.
        **kwargs: see :class:`SliceSampler`; ``strict_length`` is True, and there is no ``span``.
    """

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float32,
        reduction: str = "max",
        max_priority_within_buffer: bool = False,
        **kwargs: Any,
    ) -> None:
        SliceSampler.__init__(self, **kwargs)
        if not self.strict_length or any(self.span):
            raise NotSupported("PrioritizedSliceSampler has slices of equal length: strict_length=True, no span.")
        PrioritizedSampler.__init__(self, max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer)

    def sample(self, storage: Storage, batch_size: int) -> tuple[np.ndarray, Info]:
        n, length = self.lengths_of(batch_size)
        tree, table = self.follow(storage), self.table(storage)
        self._length = length
        lanes = storage.lanes
        start, _ = self.drawn(tree, storage, n)
        # Each row is looked up once: afterwards, a writer may have written over it.
        steps, remaining = table.find(start // lanes, start % lanes)
        for _ in range(_DRAWS):
            bad = np.flatnonzero(remaining < length)
            if not len(bad):
                break
            start[bad], _ = self.drawn(tree, storage, len(bad))
            steps[bad], remaining[bad] = table.find(start[bad] // lanes, start[bad] % lanes)
        else:  # few rows begin a slice
            bad = np.flatnonzero(remaining < length)
            rows = storage.all_rows()
            all_steps, remaining = table.find(rows // lanes, rows % lanes)
            usable = np.flatnonzero(remaining >= length)
            at = usable[self.weighted(tree, rows[usable], len(bad))]
            start[bad], steps[bad] = rows[at], all_steps[at]
        index = table.rows_of((steps[:, None] + np.arange(length)).ravel(), np.repeat(start % lanes, length))
        info = self.marks(storage, index, np.arange(length - 1, len(index), length))
        weights = (tree[start] / tree.least) ** -self.beta
        info["priority_weight"] = self.as_entry(np.repeat(weights, length))
        return index, info

    def forget(self) -> None:
        SliceSampler.forget(self)
        PrioritizedSampler.forget(self)

    def mark_update(self, index: np.ndarray) -> None:
        SliceSampler.mark_update(self, index)
        PrioritizedSampler.mark_update(self, index)

    def state_dict(self) -> dict[str, Any]:
        return PrioritizedSampler.state_dict(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        PrioritizedSampler.load_state_dict(self, state_dict)


class _FixedTable(TrajectoryTable):
    """The trajectories of a buffer that does not change, from the caller's ends or numbers.

    Args:
        storage: the storage.
        values: ``[n]`` or ``[*lead, T]``, for each row.
        ends: whether they are ends.
    """

    def __init__(self, storage: TensorStorage, values: torch.Tensor, *, ends: bool) -> None:
        super().__init__(storage, [], None)
        self._values = values.movedim(-1, 0).reshape(values.shape[-1], -1).cpu().numpy()
        self._ends = ends

    def update(self) -> None:
        if self.version:
            return
        lanes, n = self.storage.lanes, len(self._values)
        if self._values.shape[1] != lanes or n != self.ring.n_used or self.ring.begun > self.ring.columns:
            raise SpecError(
                f"ends= and trajectories= describe the rows of a buffer that does not change: {n} steps of "
                f"{self._values.shape[1]} lanes; this one has {self.ring.n_used} of {lanes}."
            )
        begins = np.ones((n, lanes), np.bool_)
        begins[1:] = self._values[:-1] if self._ends else self._values[1:] != self._values[:-1]
        lane, at = np.nonzero(begins.T)
        stops = np.append(at[1:], n)
        stops[np.append(lane[1:] != lane[:-1], True)] = n
        self.starts, self.stops, self.lanes, self.version = at, stops, lane, 1


def _span(value: bool | int, length: int) -> int:
    """Return by how many steps a slice may go beyond its trajectory."""
    if value is True:
        return length - 1
    if value >= length:
        raise SpecError(f"span must be smaller than the {length} steps of a slice, found {value}.")
    return int(value)
