"""Leaves: the rows of one entry of a storage, in arrays, on a device, or as Python objects."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack

from steppe.specs import CPU
from steppe.storage import LARGE, large_array

__all__ = ["ArrayLeaf", "DeviceLeaf", "Leaf", "ObjectLeaf", "dtype_name", "take_rows"]

#: numpy has no such dtypes; their bytes are kept as integers.
_AS_INTEGERS = {torch.bfloat16: np.dtype("int16")}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of the numpy dtype that holds values of a dtype of torch."""
    known = _AS_INTEGERS.get(dtype)
    return str(known if known is not None else torch.empty(0, dtype=dtype, device=CPU).numpy().dtype)


def take_rows(rows: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return ``rows[index]``, copied; ``take`` is faster than indexing, and large results reuse earlier memory."""
    shape = (len(index), *rows.shape[1:])
    if math.prod(shape) * rows.itemsize < LARGE:
        return rows.take(index, 0)
    # malloc may give memory of this size back to the system, which takes as long to fill it with zeros as the copy.
    # With mode="raise", take() copies its result once more, so that an error leaves `out` alone.
    return rows.take(index, 0, large_array(shape, rows.dtype), "clip")


class Leaf(Protocol):
    """The rows of one entry.

    Attributes:
        shape: the shape of one row.
        dtype: of torch; None for Python objects.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None

    def take(self, index: np.ndarray) -> Any:
        """Return a copy of rows, ``[len(index), *shape]``."""

    def source(self, values: Any) -> Any:
        """Return values ``[n, *lead, *shape]`` as ``write`` takes them, or parts of them."""

    def write(self, start: int, stop: int, source: Any) -> None:
        """Write rows ``start`` to ``stop``."""

    def put(self, index: np.ndarray, values: Any) -> None:
        """Write single rows with values ``[len(index), *shape]``."""


class ArrayLeaf:
    """Rows of an array.

    Args:
        rows: ``[n_rows, *shape]``.
        dtype: of torch.
    """

    def __init__(self, rows: np.ndarray, dtype: torch.dtype) -> None:
        self.rows = rows
        self.shape = rows.shape[1:]
        self.dtype: torch.dtype | None = dtype
        self._kind = dtype
        self._as_integers = dtype in _AS_INTEGERS
        #: ``from_numpy(quick(index, 0))`` are rows, for as many as ``most_quick``.
        self.quick = None if self._as_integers else rows.take
        self.most_quick = LARGE // max(1, rows.itemsize * math.prod(self.shape))

    def take(self, index: np.ndarray) -> torch.Tensor:
        values = torch.from_numpy(take_rows(self.rows, index))
        return values.view(self._kind) if self._as_integers else values

    def write(self, start: int, stop: int, source: np.ndarray) -> None:
        rows = self.rows[start:stop]
        if source.shape != rows.shape:  # several lanes
            rows = rows.reshape(source.shape)
        rows[...] = source

    def put(self, index: np.ndarray, values: torch.Tensor) -> None:
        self.rows[index] = self.source(values)

    def source(self, values: torch.Tensor) -> np.ndarray:
        if values.requires_grad or not values.is_cpu:
            values = values.detach().cpu()
        if self._as_integers:
            values = values.view(torch.int16)
        return values.numpy()


class DeviceLeaf:
    """Rows of a tensor on a device.

    Args:
        rows: ``[n_rows, *shape]``.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows
        self.shape = tuple(rows.shape[1:])
        self.dtype: torch.dtype | None = rows.dtype

    def take(self, index: np.ndarray) -> torch.Tensor:
        return self.rows.index_select(0, torch.from_numpy(index).to(self.rows.device))

    def source(self, values: torch.Tensor) -> torch.Tensor:
        return values.detach()

    def write(self, start: int, stop: int, source: torch.Tensor) -> None:
        rows = self.rows[start:stop]
        rows.copy_(source.reshape(rows.shape))

    def put(self, index: np.ndarray, values: torch.Tensor) -> None:
        self.rows[torch.from_numpy(index).to(self.rows.device)] = values.detach().to(self.rows.device)


class ObjectLeaf:
    """Python objects, such as text.

    Args:
        n_rows: number of rows.
    """

    def __init__(self, n_rows: int) -> None:
        self.rows: list[Any] = [None] * n_rows
        self.shape: tuple[int, ...] = ()
        self.dtype: torch.dtype | None = None

    def take(self, index: np.ndarray) -> NonTensorStack:
        return NonTensorStack(*(NonTensorData(self.rows[i]) for i in index.tolist()))

    def source(self, values: Any) -> Any:
        return values

    def write(self, start: int, stop: int, source: Any) -> None:
        self.rows[start:stop] = self._listed(source, stop - start)

    def put(self, index: np.ndarray, values: Any) -> None:
        for i, value in zip(index.tolist(), self._listed(values, len(index)), strict=True):
            self.rows[i] = value

    @staticmethod
    def _listed(values: Any, n: int) -> list[Any]:
        if isinstance(values, NonTensorData):
            return [values.data] * n
        flat = values.tolist()
        while n and len(flat) != n:  # several lanes: lists of lists
            flat = [value for row in flat for value in row]
        return list(flat)
