"""Samplers: which rows a sample has. Here: uniform ones, with and without replacement."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError, StateError
from steppe.specs import CPU
from steppe_replay.storages import Storage

__all__ = ["RandomSampler", "Sampler", "SamplerWithoutReplacement"]

#: After so many draws of rows of which some cannot be read, those that can are listed.
_DRAWS = 20

Info = dict[Any, torch.Tensor]


class Sampler:
    """Chooses the rows of a sample.

    >>> import numpy as np
    >>> import torch
    >>> from steppe import LazyTensorStorage, ReplayBuffer
    >>> from steppe_replay import Sampler
    >>> from tensordict import TensorDict
    >>> class Newest(Sampler):
    ...     def sample(self, storage, batch_size):
    ...         return storage.by_age()[-batch_size:], {}
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=Newest(), batch_size=3)
    >>> _ = buffer.extend(TensorDict(step=torch.arange(10), batch_size=[10]))
    >>> buffer.sample()["step"]
    tensor([7, 8, 9])

    Attributes:
        generator: draws the random numbers; None: that of torch.
        in_order: whether the rows of a sample follow each other in time, at least within slices.
    """

    generator: torch.Generator | None = None
    in_order: bool = False

    @abstractmethod
    def sample(self, storage: Storage, batch_size: int) -> tuple[np.ndarray, Info]:
        """Choose rows that can be read.

        Args:
            storage: where they are; it is not empty.
            batch_size: how many.

        Returns:
            Their indices ``[batch_size]``, and entries of the sample ``[batch_size, ...]`` that the sampler adds.

        Raises:
            StateError: there are not enough.
        """

    def again(
        self, storage: Storage, index: np.ndarray, info: Info, bad: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Info] | None:
        """Choose other rows instead of some that were overwritten while they were copied.

        Args:
            storage: see ``sample``.
            index: the rows of the sample.
            info: its entries.
            bad: ``[batch_size]`` bool, which rows were overwritten.

        Returns:
            The places in the sample that change, and the rows and entries for them; None: sample all rows again.
        """
        places = np.flatnonzero(bad)
        rows, entries = self.sample(storage, len(places))
        return places, rows, entries

    @property
    def ran_out(self) -> bool:
        """Whether an epoch has ended with the last sample; False for samplers without epochs."""
        return False

    @ran_out.setter
    def ran_out(self, value: bool) -> None:
        pass

    def mark_update(self, index: np.ndarray) -> None:
        """Hear that rows were replaced."""

    def update_priority(self, index: Any, priority: Any, storage: Storage | None = None) -> None:
        """Set the priorities of rows. Samplers without priorities ignore them."""

    def forget(self) -> None:
        """Hear that all rows are gone."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs."""
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` returned."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # -- for subclasses -------------------------------------------------------------------------------------------

    def integers(self, below: int, n: int) -> np.ndarray:
        """Draw ``n`` whole numbers from 0 to ``below - 1``."""
        return torch.randint(below, (n,), generator=self.generator, device=CPU).numpy()

    def uniform(self, n: int) -> np.ndarray:
        """Draw ``n`` numbers from 0 to 1, without 1."""
        return torch.rand(n, dtype=torch.float64, generator=self.generator, device=CPU).numpy()

    def permutation(self, n: int) -> np.ndarray:
        """Draw an order of ``n``."""
        return torch.randperm(n, generator=self.generator, device=CPU).numpy()


class RandomSampler(Sampler):
    """Choose rows with equal probability, with replacement.

    >>> import torch
    >>> from steppe import LazyTensorStorage, RandomSampler, ReplayBuffer
    >>> from tensordict import TensorDict
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(100), sampler=RandomSampler(), batch_size=50)
    >>> _ = buffer.extend(TensorDict(number=torch.arange(3), batch_size=[3]))
    >>> buffer.sample()["number"].unique()
    tensor([0, 1, 2])
    """

    def sample(self, storage: Storage, batch_size: int) -> tuple[np.ndarray, Info]:
        ring = storage.ring
        assert ring is not None
        n_used = ring.n_used * storage.lanes
        index = self.integers(n_used, batch_size)
        good = storage.readable(index)
        draws = 0
        while good is not None:
            bad = np.flatnonzero(~good)
            draws += 1
            if draws > _DRAWS:
                rows = storage.all_rows()
                if not len(rows):
                    raise StateError("No row of this buffer can be read: all are being written.")
                index[bad] = rows[self.integers(len(rows), len(bad))]
                break
            index[bad] = self.integers(n_used, len(bad))
            good = storage.readable(index)
        return index, {}


class SamplerWithoutReplacement(Sampler):
    """Choose each row once in an epoch, in random order; the next epoch begins when all were chosen.

    Rows that are written within an epoch are part of the next one.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from steppe_replay import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
    >>> buffer = ReplayBuffer(storage=LazyTensorStorage(4), sampler=SamplerWithoutReplacement(), batch_size=4)
    >>> _ = buffer.extend(TensorDict({"x": torch.arange(4)}, [4]))
    >>> buffer.sample()["x"].sort().values
    tensor([0, 1, 2, 3])

    Args:
        drop_last: leave out the rest of an epoch that is smaller than a sample; otherwise it is a smaller sample.
        shuffle: False: in the order in which they were written.
    """

    def __init__(self, drop_last: bool = False, shuffle: bool = True) -> None:
        self.drop_last, self.shuffle = drop_last, shuffle
        self._order = np.empty(0, np.int64)
        self._ran_out = False

    @property
    def in_order(self) -> bool:  # type: ignore[override]
        """Whether ``shuffle`` is False."""
        return not self.shuffle

    @property
    def ran_out(self) -> bool:
        return self._ran_out

    @ran_out.setter
    def ran_out(self, value: bool) -> None:
        self._ran_out = value

    def sample(self, storage: Storage, batch_size: int) -> tuple[np.ndarray, Info]:
        if len(self._order) < (batch_size if self.drop_last else 1):
            self._order = self.items(storage)
            if len(self._order) < batch_size:
                n, self._order = len(self._order), np.empty(0, np.int64)
                raise StateError(
                    f"{type(self).__name__}: a sample of {batch_size} without replacement needs as many rows, and "
                    f"there are {n}. Sample fewer, or extend the buffer first."
                )
        index, self._order = self._order[:batch_size], self._order[batch_size:]
        if len(self._order) < (batch_size if self.drop_last else 1):
            self._order = np.empty(0, np.int64)
            self._ran_out = True
        else:
            self._ran_out = False
        good = storage.readable(index)
        return index.copy() if good is None else index[good], {}

    def again(
        self, storage: Storage, index: np.ndarray, info: Info, bad: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Info] | None:
        # The same cells have other rows now, which are as good.
        places = np.flatnonzero(bad)
        good = storage.readable(index[places])
        return None if good is not None else (places, index[places], {})

    def items(self, storage: Storage) -> np.ndarray:
        """Return the rows of a new epoch in their order."""
        rows = storage.by_age()
        return rows[self.permutation(len(rows))] if self.shuffle else rows

    def forget(self) -> None:
        self._order, self._ran_out = np.empty(0, np.int64), False

    def state_dict(self) -> dict[str, Any]:
        return {"order": torch.from_numpy(self._order.copy()), "ran_out": self._ran_out}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._order, self._ran_out = state_dict["order"].numpy().copy(), state_dict["ran_out"]


def check_number(owner: object, name: str, value: Any, least: float) -> float:
    """Return a number of at least ``least``.

    Raises:
        SpecError: it is none.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value >= least:
        raise SpecError(f"{type(owner).__name__}: {name} must be a number >= {least:g}, found {value!r}.")
    return value
