"""set_array, copy_rows, clear_rows: write arrays of a storage, by the fastest method for their size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from steppe.specs import CPU

__all__ = ["TOLIST_LIMIT", "clear_rows", "copy_rows", "set_array"]

#: A vector of up to this many numbers is copied to numpy faster through ``tolist`` than through a view of its tensor.
TOLIST_LIMIT = 64
#: Up to this many numbers are copied faster by torch: ``Tensor.numpy`` takes longer than the copy.
_FEW_NUMBERS = 1024
#: Up to this many rows are written faster in a Python loop than with one index array, a single row in an eighth of the
#: time. All rows are written without an index: 64 in a fifth of the time.
_ROW_LOOP_LIMIT = 8


def set_array(
    array: np.ndarray | None, tensor: torch.Tensor, value: torch.Tensor, rows: np.ndarray | None = None
) -> None:
    """Write a tensor into storage.

    Args:
        array: numpy view of the memory; None for dtypes that numpy lacks.
        tensor: torch view of the same memory.
        value: the data, ``[n, *shape]``, or ``[k, *shape]`` for ``rows``.
        rows: ``[k]`` numpy int64, the rows to write; all of them by default.
    """
    if array is None or value.requires_grad or not value.is_cpu:
        value = value.detach()
        if rows is None:
            tensor.copy_(value)
        else:
            tensor[torch.as_tensor(rows, device=CPU)] = value.to(tensor.device)
    elif rows is not None:
        array[rows] = value.numpy()
    elif value.numel() <= _FEW_NUMBERS:
        tensor.copy_(value)
    else:
        array[...] = value.numpy()  # torch would take threads for large tensors, from environments that run


def copy_rows(target: np.ndarray, source: np.ndarray, rows: Sequence[int]) -> None:
    """Copy some rows of an array ``[n, *shape]``, each named once, to an array of the same shape."""
    if len(rows) > _ROW_LOOP_LIMIT:
        index = list(rows) if len(rows) < len(target) else slice(None)
        target[index] = source[index]
        return
    for row in rows:
        target[row] = source[row]


def clear_rows(array: np.ndarray, rows: Sequence[int]) -> None:
    """Set some rows of an array ``[n, *shape]``, each named once, to 0 or False."""
    if len(rows) > _ROW_LOOP_LIMIT:
        array[list(rows) if len(rows) < len(array) else slice(None)] = 0
        return
    for row in rows:
        array[row] = 0
