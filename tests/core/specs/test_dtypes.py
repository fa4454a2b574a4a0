"""Dtypes of numpy and torch."""

from __future__ import annotations

import numpy as np
import torch

from steppe.specs import (
    numpy_to_torch_dtype_dict,
    torch_to_numpy_dtype_dict,
)


def test_dtype_maps_are_inverse() -> None:
    for numpy_dtype, torch_dtype in numpy_to_torch_dtype_dict.items():
        assert torch.from_numpy(np.zeros(1, numpy_dtype)).dtype is torch_dtype
        assert torch_to_numpy_dtype_dict[torch_dtype] == numpy_dtype
