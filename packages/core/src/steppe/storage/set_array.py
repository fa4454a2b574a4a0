"""set_array: write a tensor into a storage, by the fastest method for its size."""

from __future__ import annotations

import numpy as np
import torch

from steppe.specs import CPU

__all__ = ["TOLIST_LIMIT", "set_array"]

#: A vector of up to this many numbers is copied to numpy faster through ``tolist`` than through a view of its tensor.
TOLIST_LIMIT = 64


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
    if array is not None and value.device.type == "cpu" and not value.requires_grad:
        few = value.numel() <= TOLIST_LIMIT
        if few and rows is None and value.ndim > 1:
            tensor.copy_(value)  # a nested list costs three times as much
            return
        numbers = value.tolist() if few else value.numpy()
        if rows is None:
            array[...] = numbers
        else:
            array[rows] = numbers
    elif rows is None:
        tensor.copy_(value.detach())
    else:
        tensor[torch.as_tensor(rows, device=CPU)] = value.detach().to(tensor.device)
