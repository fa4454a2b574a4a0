"""From the specs of dm_env, in which dm_control describes its values, to those of steppe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from steppe.errors import NotSupported
from steppe.specs import Binary, Bounded, Categorical, OneHot, Spec, Unbounded

__all__ = ["array_to_spec"]

# torch can hold unsigned integers wider than a byte, and compute next to nothing with them.
_WIDENED = {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64}


def array_to_spec(array: Any, *, categorical_action_encoding: bool = False, device: Any = None) -> Spec:
    """Convert one spec of dm_env.

    ================  ==========================================================================================
    dm_env            steppe
    ================  ==========================================================================================
    Array             Unbounded; Binary for bool
    BoundedArray      Bounded; Unbounded where no bound is finite
    DiscreteArray     OneHot, ``[n]`` int64; with ``categorical_action_encoding``: Categorical, ``[]``
    ================  ==========================================================================================

    A value without dimensions has the shape ``[1]``. The dtype is that of the array.

    Args:
        array: the spec of the library.
        categorical_action_encoding: discrete values as integers instead of one-hot rows.
        device: of the spec; None leaves it open.

    Raises:
        NotSupported: it is no spec of one array: those of several players are lists.
    """
    from dm_env import specs

    if isinstance(array, specs.DiscreteArray):
        kind = Categorical if categorical_action_encoding else OneHot
        return kind(int(array.num_values), device=device, dtype=torch.int64)
    if not isinstance(array, specs.Array) or isinstance(array, specs.StringArray):
        found = type(array).__name__
        many = " Environments of several players have no groups of agents here." if _several(array) else ""
        raise NotSupported(f"Expected the dm_env spec of one array of numbers, found {found}.{many}")
    name = np.dtype(array.dtype).name
    dtype = _WIDENED.get(name) or getattr(torch, name)
    shape = torch.Size(array.shape or (1,))
    if dtype is torch.bool:
        return Binary(shape=shape, device=device, dtype=dtype)
    if isinstance(array, specs.BoundedArray):
        low, high = (np.array(np.broadcast_to(bound, shape)) for bound in (array.minimum, array.maximum))
        if np.isfinite(low).any() or np.isfinite(high).any():
            least, most = (torch.from_numpy(bound).to(dtype) for bound in (low, high))
            return Bounded(least, most, shape=shape, device=device, dtype=dtype)
    return Unbounded(shape=shape, device=device, dtype=dtype)


def _several(value: Any) -> bool:
    return isinstance(value, list | tuple | Mapping)
