"""Convert specs to spaces of gym and gymnasium."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
import torch

from steppe.errors import NotSupported
from steppe.specs import (
    Binary,
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    NonTensor,
    OneHot,
    Spec,
    Unbounded,
)
from steppe.versions import gym_backend

__all__ = ["spec_to_space"]

_TEXT_LENGTH = 4096


def spec_to_space(spec: Spec, *, backend: str | None = None) -> Any:
    """Convert a spec to a space; the inverse of ``space_to_spec``.

    ===============================  ========================================================
    Spec                             Space
    ===============================  ========================================================
    Composite                        Dict
    Bounded, Unbounded               Box
    OneHot, Categorical              Discrete; MultiDiscrete if they have more dimensions
    MultiOneHot, MultiCategorical    MultiDiscrete
    Binary                           MultiBinary
    NonTensor                        Text
    leading dimension of -1          stacked Sequence
    ===============================  ========================================================

    >>> from steppe import Bounded, Categorical, Composite
    >>> from steppe_gym import spec_to_space
    >>> spec_to_space(Composite(speed=Bounded(-1.0, 1.0, shape=(2,)), gear=Categorical(5)))
    Dict('gear': Discrete(5), 'speed': Box(-1.0, 1.0, (2,), float32))

    Args:
        spec: a spec without batch dimensions.
        backend: ``"gymnasium"`` or ``"gym"``. ``None``: the current backend, see ``set_gym_backend``.

    Raises:
        NotSupported: no space has this layout, or the space is missing in this version of the library.
    """
    if backend is None:
        spaces = gym_backend("spaces")
    else:
        import importlib

        spaces = importlib.import_module(f"{backend}.spaces")
    return _convert(spec, spaces)


def _convert(spec: Spec, spaces: Any) -> Any:
    if isinstance(spec, Composite):
        return spaces.Dict({str(key): _convert(part, spaces) for key, part in spec.items()})
    if isinstance(spec, NonTensor):
        if not isinstance(spec.example_data, str | None):
            raise NotSupported(
                f"Non-tensor data has a space only if it is text, found values like {spec.example_data!r}."
            )
        text = _space_class(spaces, "Text")
        return text(_TEXT_LENGTH, min_length=0, charset=string.printable)
    if -1 in spec.shape:
        if spec.shape[0] != -1 or -1 in spec.shape[1:]:
            raise NotSupported(f"Only the first size of a shape may vary (-1) in a space, found {tuple(spec.shape)}.")
        return _space_class(spaces, "Sequence")(_convert(spec[0], spaces), stack=True)
    # The order matters, because these classes derive from each other: Binary, MultiOneHot, OneHot, Categorical.
    if isinstance(spec, Binary):
        return spaces.MultiBinary(_count(spec.shape)) if spec.shape else spaces.Discrete(2)
    if isinstance(spec, MultiOneHot | MultiCategorical):
        if isinstance(spec, MultiOneHot) or spec.nvec.ndim == 1:
            return spaces.MultiDiscrete([box.n for box in spec.space])
        return spaces.MultiDiscrete(spec.nvec.flatten().tolist())
    if isinstance(spec, OneHot):
        return _discrete(spaces, spec.space.n, spec.shape[:-1])
    if isinstance(spec, Categorical):
        return _discrete(spaces, spec.space.n, spec.shape)
    if isinstance(spec, Bounded):
        low, high = (bound.expand(spec.shape).cpu().numpy() for bound in (spec.space.low, spec.space.high))
        return spaces.Box(low, high, dtype=low.dtype.type)
    if isinstance(spec, Unbounded):
        return _unbounded(spaces, spec)
    raise NotSupported(f"No space has the layout of a {type(spec).__name__}.")


def _discrete(spaces: Any, n: int, shape: torch.Size) -> Any:
    if not shape:
        return spaces.Discrete(n)
    counts = np.full(tuple(shape), n)
    return spaces.MultiDiscrete(counts if counts.ndim > 1 else counts.tolist())


def _unbounded(spaces: Any, spec: Spec) -> Any:
    dtype = torch.empty(0, dtype=spec.dtype, device="cpu").numpy().dtype
    if dtype.kind == "b":
        return spaces.MultiBinary(_count(spec.shape))
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    shape = tuple(spec.shape)
    return spaces.Box(np.full(shape, low, dtype), np.full(shape, high, dtype), dtype=dtype.type)


def _count(shape: torch.Size) -> Any:
    return int(shape[0]) if len(shape) == 1 else [int(size) for size in shape]


def _space_class(spaces: Any, name: str) -> Any:
    space_class = getattr(spaces, name, None)
    if space_class is None:
        raise NotSupported(f"This version of {spaces.__name__.partition('.')[0]} has no space {name}.")
    return space_class
