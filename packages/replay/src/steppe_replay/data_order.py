"""Functions of data on its way into a storage and out of it: transforms, and the order of dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from steppe.errors import SpecError

__all__ = ["held_back", "over_time", "read", "time_first", "written"]


def written(data: Any, transforms: Sequence[tuple[Callable[[Any], Any], bool]]) -> Any:
    """Return data as it is stored: after the inverses of transforms, the last one first."""
    for transform, invert in reversed(transforms):
        function = transform if invert else getattr(transform, "inv", None)
        if function is not None:
            with torch.no_grad():
                data = function(data)
    return data


def held_back(transforms: Sequence[tuple[Callable[[Any], Any], bool]]) -> Iterator[Any]:
    """Yield data that transforms hold back until more data comes, as it is stored; they hold nothing afterwards."""
    for i in reversed(range(len(transforms))):
        flush = getattr(transforms[i][0], "flush", None)
        data = None if flush is None else flush()
        if data is not None:
            yield written(data, transforms[:i])


def over_time(transforms: Sequence[tuple[Callable[[Any], Any], bool]]) -> bool:
    """Whether a transform of samples reads steps in order of time."""
    return any(getattr(transform, "over_time", False) for transform, invert in transforms if not invert)


def read(data: Any, transforms: Sequence[tuple[Callable[[Any], Any], bool]], *, in_order: bool = True) -> Any:
    """Return a sample after the transforms.

    Args:
        data: the sample.
        transforms: each with whether it is called with data that is written instead.
        in_order: whether rows follow each other in time.

    Raises:
        SpecError: a transform reads steps in order of time, and these rows are in no order.
    """
    for transform, invert in transforms:
        function = getattr(transform, "inv", None) if invert else transform
        if not in_order and not invert and getattr(transform, "over_time", False) and data.batch_dims == 1:
            raise SpecError(
                f"{type(transform).__name__} reads steps in order of time, and the rows of this sample are in no "
                "order. Sample slices: sampler=SliceSampler(slice_len=...); or transform the data when it is written: "
                "buffer.append_transform(transform, invert=True)."
            )
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
