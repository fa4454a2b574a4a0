"""Convert specs of dm_env, which dm_control uses, to specs of steppe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from steppe.errors import NotSupported
from steppe.specs import Binary, Bounded, Categorical, OneHot, Spec, Unbounded

__all__ = ["array_to_spec"]

# torch supports few operations on unsigned integers wider than 8 bits.
_WIDENED = {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64}


def array_to_spec(
    array: Any, *, categorical_action_encoding: bool = False, device: torch.device | str | int | None = None
) -> Spec:
    """Convert a spec of dm_env.

    ================  ==========================================================================================
    dm_env            steppe
    ================  ==========================================================================================
    Array             Unbounded; Binary for bool
    BoundedArray      Bounded; Unbounded if no bound is finite
    DiscreteArray     OneHot, ``[n]`` int64; with ``categorical_action_encoding``: Categorical, ``[]``
    ================  ==========================================================================================

    A scalar gets the shape ``[1]``. The dtype is that of the array; unsigned integers wider than 8 bits become the next
    wider signed integers.

    Args:
        array: the spec of the library.
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        device: device of the spec. ``None``: no device.

    Raises:
        NotSupported: ``array`` is not the spec of one array. Environments of several players have lists of specs.
    """
    from dm_env import specs

    if isinstance(array, specs.DiscreteArray):
        kind = Categorical if categorical_action_encoding else OneHot
        return kind(int(array.num_values), device=device, dtype=torch.int64)
    if not isinstance(array, specs.Array) or isinstance(array, specs.StringArray):
        type_name = type(array).__name__
        hint = (
            " Environments of several players are not supported." if isinstance(array, list | tuple | Mapping) else ""
        )
        raise NotSupported(f"Expected the dm_env spec of one array of numbers, found {type_name}.{hint}")
    name = np.dtype(array.dtype).name
    dtype = _WIDENED.get(name) or getattr(torch, name)
    shape = torch.Size(array.shape or (1,))
    if dtype is torch.bool:
        return Binary(shape=shape, device=device, dtype=dtype)
    if isinstance(array, specs.BoundedArray):
        low, high = (np.array(np.broadcast_to(bound, shape)) for bound in (array.minimum, array.maximum))
        if np.isfinite(low).any() or np.isfinite(high).any():
            low_tensor, high_tensor = (torch.from_numpy(bound).to(dtype) for bound in (low, high))
            return Bounded(low_tensor, high_tensor, shape=shape, device=device, dtype=dtype)
    return Unbounded(shape=shape, device=device, dtype=dtype)
