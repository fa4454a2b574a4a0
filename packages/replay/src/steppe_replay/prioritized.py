"""PrioritizedSampler: rows in proportion to their priorities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError, StateError
from steppe_replay.priority_tree import PriorityTree
from steppe_replay.ring import Follower
from steppe_replay.samplers import Info, Sampler, check_number
from steppe_replay.storages import Storage
from steppe_replay.torchrl_arguments import check_others

__all__ = ["PrioritizedSampler"]

_DRAWS = 20


class PrioritizedSampler(Sampler):
    """Choose rows with probabilities in proportion to ``(priority + eps) ** alpha``, with replacement.

    A new row has the largest priority so far, 1 before there is one. A sample has ``"priority_weight"``, the importance
    weight ``(p / p_min) ** -beta`` of each row, where ``p`` is its probability and ``p_min`` the smallest one.

    >>> import torch
    >>> from steppe import LazyTensorStorage, PrioritizedSampler, ReplayBuffer
    >>> from tensordict import TensorDict
    >>> sampler = PrioritizedSampler(100, alpha=1.0, beta=1.0)
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=sampler, batch_size=1000)
    >>> index = buffer.extend(TensorDict(td_error=torch.tensor([0.0, 1.0, 3.0]), batch_size=[3]))
    >>> buffer.update_priority(index, torch.tensor([0.0, 1.0, 3.0]))
    >>> batch, info = buffer.sample(return_info=True)
    >>> 700 < (batch["td_error"] == 3).sum() < 800, sorted(info)
    (tensor(True), ['index', 'priority_weight'])

    Args:
        max_capacity: rows of the storage.
        alpha: how much priorities count; 0: all rows are equal.
        beta: exponent of the importance weights.
        eps: added to priorities.
        dtype: dtype of the importance weights.
        reduction: how the priorities of a row that has several are combined: ``"max"``, ``"min"``, ``"mean"`` or
            ``"median"``.
        max_priority_within_buffer: new rows have the largest priority of the rows that are in the buffer.
        **others: arguments of TorchRL that have no effect here are ignored with a warning.
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
        **others: Any,
    ) -> None:
        check_others(type(self), others)
        check_number(self, "alpha", alpha, 0)
        check_number(self, "beta", beta, 0)
        check_number(self, "eps", eps, 0)
        if reduction not in ("max", "min", "mean", "median"):
            raise SpecError(
                f"{type(self).__name__}: reduction is 'max', 'min', 'mean' or 'median', found {reduction!r}."
            )
        self.max_capacity = max_capacity
        self._alpha, self.beta, self.eps = alpha, beta, eps
        self.dtype, self.reduction = dtype, reduction
        self.max_priority_within_buffer = max_priority_within_buffer
        self._tree: PriorityTree | None = None
        self._follower: Follower | None = None
        self._largest: float | None = None
        #: The state to load when the storage is known, and priorities set before the first sample.
        self._loaded: Mapping[str, Any] | None = None

    @property
    def alpha(self) -> float:
        """The exponent of priorities; setting it changes those of all rows."""
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        check_number(self, "alpha", value, 0)
        tree = self._tree
        if tree is not None and value != self._alpha:
            rows = np.arange(tree.n)
            rows = rows[tree[rows] > 0]
            if self._alpha == 0:
                raise StateError("alpha cannot change from 0: priorities were not kept. Begin with a small alpha.")
            tree.set(rows, tree[rows] ** (value / self._alpha))
        self._alpha = value

    @property
    def default_priority(self) -> float:
        """The priority of new rows."""
        if self.max_priority_within_buffer and self._tree is not None and self._alpha:
            largest = float(self._tree[np.arange(self._tree.n)].max(initial=0.0))
            return max(largest ** (1 / self._alpha) - self.eps, 0.0) if largest else 1.0
        return 1.0 if self._largest is None else self._largest

    def _weights(self, priority: Any) -> Any:
        return (priority + self.eps) ** self._alpha

    def follow(self, storage: Storage) -> PriorityTree:
        """Give rows that were written since the last call their first priority; return the tree."""
        ring = storage.ring
        assert ring is not None
        if self._tree is None or self._follower is None or self._follower.ring is not ring:
            n = ring.columns * storage.lanes
            tree, self._tree = self._tree, PriorityTree(n)
            self._follower = Follower(ring)
            if tree is not None and tree.n <= n:  # a list that has grown
                rows = np.arange(tree.n)
                self._tree.set(rows, tree[rows])
                self._complete(storage)
            elif self._loaded is not None:
                weights, self._loaded = self._loaded["weights"].numpy(), None
                rows = storage.all_rows()
                rows = rows[rows < len(weights)]
                self._tree.set(rows, weights[rows])
                self._complete(storage)
        new = self._follower.new()
        if new is None:  # rows were replaced; those have their priorities from mark_update
            self._complete(storage)
            return self._tree
        for start, stop in new:
            for first, last in ring.parts(start, stop):
                rows = np.arange(first * storage.lanes, last * storage.lanes)
                self._tree.set(rows, self._weights(self.default_priority))
        return self._tree

    def sample(self, storage: Storage, batch_size: int) -> tuple[np.ndarray, Info]:
        tree = self.follow(storage)
        index, weights = self.drawn(tree, storage, batch_size)
        weights = (weights / tree.least) ** -self.beta
        return index, {"priority_weight": self.as_entry(weights)}

    def as_entry(self, weights: np.ndarray) -> torch.Tensor:
        """Return importance weights as an entry of a sample."""
        if self.dtype is torch.float32:  # astype() takes a tenth of the time of to()
            return torch.from_numpy(weights.astype(np.float32))
        return torch.from_numpy(weights).to(self.dtype)

    def drawn(self, tree: PriorityTree, storage: Storage, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return ``n`` rows that can be read, and their weights."""
        if tree.total <= 0:
            raise StateError("All rows of this buffer have priority 0, and eps is 0: there is nothing to draw.")
        index, weights = tree.draw(self.uniform(n))
        good = storage.readable(index)
        draws = 0
        while good is not None:
            bad = np.flatnonzero(~good)
            draws += 1
            if draws > _DRAWS:  # most of the weight is on rows that are being written
                rows = storage.all_rows()
                index[bad] = rows[self.weighted(tree, rows, len(bad))]
                weights = tree[index]
                break
            index[bad], weights[bad] = tree.draw(self.uniform(len(bad)))
            good = storage.readable(index)
        return index, weights

    def weighted(self, tree: PriorityTree, rows: np.ndarray, n: int) -> np.ndarray:
        """Draw ``n`` of some rows in proportion to their weights; return their places among these rows."""
        cumulated = tree[rows].cumsum()
        if not len(rows) or cumulated[-1] <= 0:
            raise StateError(
                f"{type(self).__name__}: no row of this buffer can be drawn. Those with a priority are being written, "
                "or begin no slice."
            )
        at = cumulated.searchsorted(self.uniform(n) * cumulated[-1], "right")
        places: np.ndarray = np.minimum(at, len(rows) - 1)
        return places

    def update_priority(self, index: Any, priority: Any, storage: Storage | None = None) -> None:
        """Set the priorities of rows.

        Args:
            index: ``[n]`` int, or one number; negative ones are left out.
            priority: ``[n]`` numbers of at least 0, or one for all.
            storage: the storage.

        Raises:
            SpecError: a priority is negative or NaN, or their number is another one. No priority was changed.
            StateError: there is no such row.
        """
        rows = np.atleast_1d(_numbers(index)).astype(np.int64, copy=False).ravel()
        values = _numbers(priority).astype(np.float64)
        if values.ndim > 1 or (values.ndim and len(values) != len(rows)):
            if values.size % max(len(rows), 1) or not len(rows):
                raise SpecError(
                    f"update_priority got {len(rows)} rows, and priorities of shape {values.shape}: one for each row."
                )
            values = self.reduced(values.reshape(len(rows), -1))
        if not values.min(initial=0.0) >= 0:  # NaN too
            wrong = values[~(values >= 0)].ravel()[0]
            raise SpecError(f"A priority must be a number of at least 0, found {wrong}. No priority was changed.")
        if not values.ndim:
            values = np.full(rows.shape, values)
        largest_row = int(rows.view(np.uint64).max(initial=0))
        if largest_row >> 63:  # some row is negative
            known = rows >= 0
            rows, values = rows[known], values[known]
            largest_row = int(rows.max(initial=0))
        if not len(rows):
            return
        if storage is not None and storage.ring is not None:
            tree, n_rows = self.follow(storage), storage.ring.n_used * storage.lanes
        elif self._tree is not None:
            tree, n_rows = self._tree, self._tree.n
        else:
            raise StateError("update_priority: this buffer has no rows yet.")
        if largest_row >= n_rows:
            raise StateError(
                f"update_priority: row {largest_row} does not exist; the buffer has {n_rows} rows. Nothing was changed."
            )
        tree.set(rows, self._weights(values))
        largest = float(values.max())
        self._largest = largest if self._largest is None else max(self._largest, largest)

    def reduced(self, values: np.ndarray) -> np.ndarray:
        """Combine the priorities ``[n, k]`` of each row."""
        functions: dict[str, Any] = {"max": np.max, "min": np.min, "mean": np.mean, "median": np.median}
        result: np.ndarray = functions[self.reduction](values, axis=1)
        return result

    def mark_update(self, index: np.ndarray) -> None:
        if self._tree is not None:
            rows = index[(index >= 0) & (index < self._tree.n)]
            self._tree.set(rows, self._weights(self.default_priority))

    def forget(self) -> None:
        self._tree = self._follower = None

    def state_dict(self) -> dict[str, Any]:
        weights = None if self._tree is None else torch.from_numpy(self._tree[np.arange(self._tree.n)])
        return {"alpha": self._alpha, "beta": self.beta, "eps": self.eps, "largest": self._largest, "weights": weights}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._alpha, self.beta, self.eps = state_dict["alpha"], state_dict["beta"], state_dict["eps"]
        self._largest = state_dict["largest"]
        self._tree = self._follower = None
        self._loaded = state_dict if state_dict["weights"] is not None else None

    def _complete(self, storage: Storage) -> None:
        """Give all rows without a priority their first one, instead of those that the follower reports."""
        assert self._tree is not None
        assert self._follower is not None
        self._follower.new()
        rows = storage.all_rows()
        rows = rows[self._tree[rows] <= 0]
        if len(rows):
            self._tree.set(rows, self._weights(self.default_priority))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(alpha={self.alpha}, beta={self.beta}, eps={self.eps})"


def _numbers(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return np.asarray(value)
