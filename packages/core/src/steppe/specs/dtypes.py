"""Tables between dtypes of numpy and torch, and the default device."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import torch

from steppe.errors import SpecError

__all__ = ["CPU", "UNSIGNED", "DTypeLike", "numpy_to_torch_dtype_dict", "to_torch_dtype", "torch_to_numpy_dtype_dict"]

CPU: Final = torch.device("cpu")
"""Device of new data for specs without a device, independent of ``torch.set_default_device``."""

UNSIGNED: Final = (torch.uint16, torch.uint32, torch.uint64)
"""Integers that torch cannot draw, and cannot compare on all devices and in all versions."""

DTypeLike: TypeAlias = "torch.dtype | np.dtype | type | str | None"
"""What names a dtype: a torch dtype, or anything that ``numpy.dtype`` understands; None is a default."""

_NAMES = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip

numpy_to_torch_dtype_dict: Final[dict[np.dtype, torch.dtype]] = {
    np.dtype(name): getattr(torch, name) for name in _NAMES
}
"""From ``np.dtype`` to ``torch.dtype``; numpy has no bfloat16."""

torch_to_numpy_dtype_dict: Final[dict[torch.dtype, np.dtype]] = {
    value: key for key, value in numpy_to_torch_dtype_dict.items()
}
"""From ``torch.dtype`` to ``np.dtype``; torch.bfloat16 has no entry."""


def to_torch_dtype(dtype: DTypeLike) -> torch.dtype:
    """Return the torch dtype that ``dtype`` names.

    Args:
        dtype: a torch dtype, or anything that ``numpy.dtype`` understands.

    Raises:
        SpecError: it is not the name of a dtype, or torch has no such dtype.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    try:
        if dtype is None:  # For numpy this is float64.
            raise TypeError
        return numpy_to_torch_dtype_dict[np.dtype(dtype)]
    except (TypeError, KeyError):
        raise SpecError(f"Expected a torch dtype or the name of one, found {dtype!r}.") from None
