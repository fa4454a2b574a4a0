"""Functions of data on its way into a storage and out of it: transforms, and the order of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from steppe.errors import SpecError

__all__ = ["read", "time_first", "written"]


def written(data: Any, transforms: Sequence[tuple[Callable[[Any], Any], bool]]) -> Any:
    """Return data as it is stored: after the inverses of transforms, the last one first."""
    for transform, invert in reversed(transforms):
        function = transform if invert else getattr(transform, "inv", None)
        if function is not None:
            with torch.no_grad():
                data = function(data)
    return data


def read(data: Any, transforms: Sequence[tuple[Callable[[Any], Any], bool]]) -> Any:
    """Return a sample after the transforms."""
    for transform, invert in transforms:
        function = getattr(transform, "inv", None) if invert else transform
        if function is not None:
            data = function(data)
    return data


def time_first(data: Any, ndim: int, dim: int) -> Any:
    """Return data of several dimensions with time in front; other data as it is."""
    if ndim == 1 or not dim:
        return data
    if data.batch_dims < ndim:
        raise SpecError(
            f"A storage with ndim={ndim} takes data with {ndim} leading dimensions, found batch size "
            f"{tuple(data.batch_size)}."
        )
    return data.transpose(0, dim)
