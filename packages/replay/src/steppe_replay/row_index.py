"""Convert between indices of rows and the indices that callers see, which have one column for each dimension."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steppe.errors import StateError
from steppe.specs import CPU
from steppe_replay.storages import Storage

__all__ = ["as_caller_index", "as_numpy_index", "as_rows"]


def as_caller_index(index: torch.Tensor, storage: Storage) -> torch.Tensor:
    """Return indices of rows ``[n]`` as callers see them: ``[n]``, or ``[n, ndim]`` with several dimensions."""
    if storage.ndim == 1:
        return index
    return torch.from_numpy(np.stack(np.unravel_index(index.numpy(), storage.shape), -1))


def as_rows(index: Any, storage: Storage) -> np.ndarray:
    """Return the rows of a caller's index: numbers, ``[n, ndim]``, or a tuple with one tensor for each dimension.

    Raises:
        StateError: a row of several dimensions does not exist.
    """
    if isinstance(index, tuple):
        index = torch.stack([torch.as_tensor(part, device=CPU) for part in index], -1)
    array = np.asarray(index.cpu() if isinstance(index, torch.Tensor) else index)
    if storage.ndim > 1 and array.ndim and array.shape[-1] == storage.ndim:
        outside = ((array < 0) | (array >= np.asarray(storage.shape))).any(-1)
        if outside.any():
            raise StateError(
                f"The row {array[outside][0].tolist()} does not exist: this storage has the shape "
                f"{tuple(storage.shape)}, time first."
            )
        array = np.ravel_multi_index(tuple(np.moveaxis(array, -1, 0)), storage.shape)
    return np.asarray(array, np.int64)


def as_numpy_index(index: Any) -> Any:
    """Return a tensor as an array, and every other index as it is."""
    return index.numpy() if isinstance(index, torch.Tensor) else index
