"""set_array: write a tensor into a storage, by the fastest method for its size."""

from __future__ import annotations

import numpy as np
import torch

from steppe.specs import CPU

__all__ = ["TOLIST_LIMIT", "set_array"]

#: A vector of up to this many numbers is copied to numpy faster through ``tolist`` than through a view of its tensor.
TOLIST_LIMIT = 64
#: Up to this many numbers are copied faster by torch: ``Tensor.numpy`` takes longer than the copy.
_FEW_NUMBERS = 1024


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
