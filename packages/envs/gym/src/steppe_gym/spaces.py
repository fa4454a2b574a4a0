"""Convert spaces of gym and gymnasium to specs.

The module ``to_space`` converts specs to spaces. The module ``values`` reads values of a space into a spec's layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from steppe.errors import NotSupported, SpecError
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

from .conversions import conversion_of, register_gym_spec_conversion

__all__ = ["element_spec", "register_gym_spec_conversion", "space_to_spec", "torch_dtype"]

# torch supports few operations on unsigned integers wider than 8 bits.
_WIDENED = {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64, "float128": torch.float64}


def space_to_spec(
    space: Any, *, categorical_action_encoding: bool = False, device: torch.device | str | int | None = None
) -> Spec:
    """Convert a space to a spec.

    ========================  =====================================================================================
    Space                     Spec
    ========================  =====================================================================================
    Box                       Bounded; Unbounded if no bound is finite; Binary for bool
    Discrete                  OneHot, ``[n]``; with ``categorical_action_encoding``: Categorical, ``[]``
    MultiDiscrete             MultiOneHot, MultiCategorical; with equal counts OneHot ``[k, n]``, Categorical ``[k]``
    MultiBinary               Binary
    Dict                      Composite
    Tuple                     one stacked spec if all parts are alike; otherwise Composite with keys "0", "1", ...
    Text                      NonTensor
    Sequence                  the spec of an element with a leading dimension of -1
    Graph, OneOf              not supported
    ========================  =====================================================================================

    Discrete values start at zero in the spec, for any start of the space. The dtype is that of the space, or int64 for
    one-hot vectors. Unsigned integers wider than 8 bits become the next wider signed integers.

    >>> import gymnasium
    >>> from steppe_gym import space_to_spec
    >>> space_to_spec(gymnasium.spaces.Discrete(3), categorical_action_encoding=True).n
    3

    Args:
        space: a space of gym or gymnasium, of any version, or of a class that has a registered conversion.
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        device: device of the spec. ``None``: no device.

    Returns:
        A spec without batch dimensions.

    Raises:
        NotSupported: the space has no fixed layout, or no conversion is registered for it.
    """
    return conversion_of(space).to_spec(space, categorical_action_encoding=categorical_action_encoding, device=device)


def element_spec(space: Any, spec: Spec) -> Spec:
    """Return the spec of one element of a Sequence.

    The element has the encoding of the Sequence's ``spec``.
    """
    leaves = list(spec.values(include_nested=True, leaves_only=True)) if isinstance(spec, Composite) else [spec]
    integers = any(isinstance(leaf, Categorical) and not isinstance(leaf, OneHot | Binary) for leaf in leaves)
    return space_to_spec(space.feature_space, categorical_action_encoding=integers)


def torch_dtype(dtype: npt.DTypeLike) -> torch.dtype:
    """Return the torch dtype for values of a numpy dtype."""
    name = np.dtype(dtype).name
    return _WIDENED.get(name) or getattr(torch, name)


@register_gym_spec_conversion("spaces.Box")
def _box(space: Any, *, device: Any) -> Spec:
    dtype = torch_dtype(space.dtype)
    shape = torch.Size(space.shape)
    if dtype is torch.bool:
        return Binary(shape=shape, device=device, dtype=dtype)
    low, high = np.broadcast_to(space.low, shape), np.broadcast_to(space.high, shape)
    if _has_no_bound(low, high):
        return Unbounded(shape=shape, device=device, dtype=dtype)
    return Bounded(_tensor(low, dtype), _tensor(high, dtype), shape=shape, device=device, dtype=dtype)


@register_gym_spec_conversion("spaces.Discrete")
def _discrete(space: Any, *, categorical_action_encoding: bool, device: Any) -> Spec:
    if categorical_action_encoding:
        return Categorical(int(space.n), device=device, dtype=torch_dtype(getattr(space, "dtype", None) or np.int64))
    return OneHot(int(space.n), device=device, dtype=torch.int64)


@register_gym_spec_conversion("spaces.MultiDiscrete")
def _multi_discrete(space: Any, *, categorical_action_encoding: bool, device: Any) -> Spec:
    dtype = torch_dtype(space.dtype)
    counts = np.asarray(space.nvec)
    if np.unique(counts).size == 1:
        n = int(counts.flat[0])
        if categorical_action_encoding:
            return Categorical(n, shape=counts.shape, device=device, dtype=dtype)
        return OneHot(n, shape=(*counts.shape, n), device=device, dtype=torch.int64)
    if counts.ndim > 1:
        # One-hot vectors of a grid of unequal counts do not form a rectangular tensor.
        high = torch.from_numpy(counts - 1).to(dtype)
        return Bounded(torch.zeros_like(high), high, shape=counts.shape, device=device, dtype=dtype)
    if categorical_action_encoding:
        return MultiCategorical(counts.tolist(), device=device, dtype=dtype)
    return MultiOneHot(counts.tolist(), device=device, dtype=torch.int64)


@register_gym_spec_conversion("spaces.MultiBinary")
def _multi_binary(space: Any, *, device: Any) -> Spec:
    # In gym 0.13 the shape of MultiBinary is not reliable. Its parameter n exists in every version.
    shape = (int(space.n),) if np.ndim(space.n) == 0 else tuple(int(n) for n in space.n)
    return Binary(shape=shape, device=device, dtype=torch_dtype(space.dtype or np.int8))


@register_gym_spec_conversion("spaces.Dict")
def _dict(space: Any, *, categorical_action_encoding: bool, device: Any) -> Spec:
    return Composite(
        {
            str(name): space_to_spec(part, categorical_action_encoding=categorical_action_encoding, device=device)
            for name, part in space.spaces.items()
        },
        device=device,
    )


@register_gym_spec_conversion("spaces.Tuple")
def _tuple(space: Any, *, categorical_action_encoding: bool, device: Any) -> Spec:
    parts = [
        space_to_spec(part, categorical_action_encoding=categorical_action_encoding, device=device)
        for part in space.spaces
    ]
    return _stack(parts) or Composite({str(i): part for i, part in enumerate(parts)}, device=device)


# The missions of MiniGrid are strings, of a class that derives from Space only.
@register_gym_spec_conversion("minigrid.core.mission.MissionSpace")
@register_gym_spec_conversion("spaces.Text")
def _text(space: Any, *, device: Any) -> Spec:
    # The example is a text of the space, because random actions are copies of it.
    shortest = getattr(space, "min_length", 0) * min(getattr(space, "character_set", None) or " ")
    return NonTensor(shape=(), device=device, example_data=shortest)


@register_gym_spec_conversion("spaces.Sequence")
def _sequence(space: Any, *, categorical_action_encoding: bool, device: Any) -> Spec:
    element = space_to_spec(space.feature_space, categorical_action_encoding=categorical_action_encoding, device=device)
    return _with_length(element)


@register_gym_spec_conversion("spaces.Graph")
def _graph(space: Any) -> Spec:
    raise NotSupported(
        f"{space} has no tensor layout: the number of nodes and edges varies. "
        f"Use a Box or a Dict in the environment, or register a conversion with "
        f"@steppe_gym.register_gym_spec_conversion('spaces.Graph')."
    )


@register_gym_spec_conversion("spaces.OneOf")
def _one_of(space: Any) -> Spec:
    raise NotSupported(
        f"{space} has no tensor layout: its values have different shapes. "
        f"Use a Dict with a selector in the environment, or register a conversion with "
        f"@steppe_gym.register_gym_spec_conversion('spaces.OneOf')."
    )


def _has_no_bound(low: np.ndarray, high: np.ndarray) -> bool:
    if np.issubdtype(low.dtype, np.floating):
        return bool(np.isinf(low).all() and np.isinf(high).all())
    # Bytes from 0 to 255 are images, whose bounds are kept.
    limits = np.iinfo(low.dtype)
    return limits.bits > 8 and bool((low == limits.min).all() and (high == limits.max).all())


def _tensor(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    if array.dtype.name in _WIDENED and not dtype.is_floating_point:
        array = np.minimum(array.astype(np.uint64), np.uint64(torch.iinfo(dtype).max)).astype(np.int64)
    if array.dtype.name == "float128":
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array)).to(dtype)


def _stack(parts: list[Spec]) -> Spec | None:
    """Stack equal specs to one spec with a leading dimension.

    Returns None if they differ.
    """
    if not parts or any(not isinstance(part, type(parts[0])) for part in parts[1:]):
        return None
    first = parts[0]
    if isinstance(first, Composite | NonTensor | MultiOneHot | MultiCategorical):
        return None
    if any((part.shape, part.dtype) != (first.shape, first.dtype) for part in parts) or -1 in first.shape:
        return None
    shape = torch.Size((len(parts), *first.shape))
    if isinstance(first, Bounded):
        low = torch.stack([part.space.low for part in parts])
        high = torch.stack([part.space.high for part in parts])
        return Bounded(low, high, shape=shape, device=first.device, dtype=first.dtype)
    if isinstance(first, OneHot | Categorical) and any(part.space.n != first.space.n for part in parts):
        return None
    return first.expand(shape)


def _with_length(element: Spec) -> Spec:
    """Add a leading dimension of -1, for any number of elements, to each leaf."""
    if isinstance(element, Composite):
        return Composite({key: _with_length(part) for key, part in element.items()}, device=element.device)
    shape = torch.Size((-1, *element.shape))
    if -1 in element.shape:
        raise NotSupported("A Sequence of Sequences has no layout as a tensor: more than one size varies.")
    if isinstance(element, NonTensor):
        return NonTensor(shape=(), device=element.device, example_data=())
    if isinstance(element, MultiOneHot | MultiCategorical):
        raise NotSupported("A Sequence of MultiDiscrete with unequal counts has no layout as a tensor.")
    if isinstance(element, Bounded):
        low, high = element.space.low.min(), element.space.high.max()
        return Bounded(low.item(), high.item(), shape=shape, device=element.device, dtype=element.dtype)
    if isinstance(element, OneHot):
        return OneHot(element.space.n, shape=shape, device=element.device, dtype=element.dtype)
    if isinstance(element, Binary):
        return Binary(shape=shape, device=element.device, dtype=element.dtype)
    if isinstance(element, Categorical):
        return Categorical(element.space.n, shape=shape, device=element.device, dtype=element.dtype)
    if isinstance(element, Unbounded):
        return Unbounded(shape=shape, device=element.device, dtype=element.dtype)
    raise SpecError(f"A Sequence of {type(element).__name__} has no tensor layout.")
