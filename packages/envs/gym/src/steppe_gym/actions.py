"""From the actions in data to those of a library: compiled once, at construction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import ActionCodec
from steppe.specs import Categorical, Composite, NonTensor, OneHot, Spec

from .conversions import conversion_of
from .spaces import element_spec, torch_dtype
from .values import kind_of, numpy_dtype

__all__ = ["action_decoder", "batch_actions", "joint_choice", "joint_decoder"]

#: The numbers of up to so many categories are made once.
_MANY = 4096


def action_decoder(space: Any, spec: Spec, key: Any) -> Callable[[Any], Any] | None:
    """Make the function from native actions to actions of a space, or None where they are the same.

    A native action is what the array path hands over: an int for a single one-hot or categorical action, an array
    otherwise, and a dict of these by key where ``spec`` has several leaves.

    Args:
        space: the action space.
        spec: the spec that it was converted to; without batch dimensions.
        key: the key of the action in data; leaves of a Composite have tuple keys below it. ``()`` has them at the root.
    """
    if not isinstance(spec, Composite):
        return _decode_leaf(space, spec)
    prefix = (key,) if isinstance(key, str) else tuple(key)
    build = _decode_tree(space, spec, prefix)
    only = list(_leaf_keys(spec, prefix))
    if len(only) == 1:
        name = _key(only[0])
        return lambda native: build({name: native})
    return build


def joint_choice(
    space: Any, observation: Spec, categorical_action_encoding: bool = False, device: Any = None
) -> Spec | None:
    """One choice among all combinations of a MultiDiscrete, where the observation has an ``"action_mask"`` of them.

    A mask of shape ``[n, m]`` allows pairs, which two choices apart from each other cannot be masked by.

    Returns:
        A Categorical or OneHot of ``n * m`` categories, in the order of the flattened mask; None where the space is no
        MultiDiscrete, or no mask of its combinations is observed.
    """
    if kind_of(space) != "MultiDiscrete" or not isinstance(observation, Composite):
        return None
    counts = np.asarray(space.nvec)
    mask = observation.get("action_mask", None)
    if counts.ndim != 1 or mask is None or isinstance(mask, Composite) or tuple(mask.shape) != tuple(counts):
        return None
    n = int(counts.prod())
    if categorical_action_encoding:
        return Categorical(n, device=device, dtype=torch_dtype(space.dtype))
    return OneHot(n, device=device, dtype=torch.bool)


def joint_decoder(space: Any) -> Callable[[Any], Any]:
    """Make the function from a category of :func:`joint_choice` to the action of the MultiDiscrete that it is."""
    counts, dtype = tuple(int(n) for n in space.nvec), np.dtype(space.dtype)
    start = getattr(space, "start", None)
    offset = np.zeros(len(counts), dtype) if start is None else np.asarray(start, dtype)
    return lambda native: np.array(np.unravel_index(int(native), counts), dtype) + offset


def batch_actions(space: Any, rows: Sequence[Any]) -> Any:
    """Actions of several rows as a vector environment takes them: arrays, in the containers of the space."""
    kind = kind_of(space)
    if kind == "Dict":
        return {name: batch_actions(part, [row[name] for row in rows]) for name, part in space.spaces.items()}
    if kind == "Tuple":
        return tuple(batch_actions(part, [row[i] for row in rows]) for i, part in enumerate(space.spaces))
    if kind in ("Text", "Sequence"):
        return tuple(rows)
    if not rows:
        return np.empty((0, *space.shape), space.dtype)
    return np.stack([np.asarray(row, space.dtype) for row in rows])


def _leaf_keys(spec: Composite, prefix: tuple[Any, ...]) -> Any:
    for name, part in spec.items():
        if isinstance(part, Composite):
            yield from _leaf_keys(part, (*prefix, name))
        else:
            yield (*prefix, name)


def _decode_tree(space: Any, spec: Spec, prefix: tuple[Any, ...]) -> Callable[[Any], Any]:
    kind = kind_of(space)
    if kind == "Sequence" and conversion_of(space).decode is None:
        return _decode_sequence(space, spec, prefix)
    if not isinstance(spec, Composite):
        decode, key = _decode_leaf(space, spec), _key(prefix)
        if decode is None:
            return lambda native: native[key]
        return lambda native: decode(native[key])
    names = list(space.spaces) if kind == "Dict" else range(len(space.spaces))
    parts = [(name, _decode_tree(space.spaces[name], spec[str(name)], (*prefix, str(name)))) for name in names]
    if kind == "Dict":
        return lambda native: {name: part(native) for name, part in parts}
    return lambda native: tuple(part(native) for _, part in parts)


def _decode_leaf(space: Any, spec: Spec) -> Callable[[Any], Any] | None:
    conversion = conversion_of(space)
    if conversion.decode is not None:
        convert = conversion.decode
        return lambda native: convert(space, native)
    if isinstance(spec, NonTensor):
        return None
    kind = kind_of(space)
    if kind == "Sequence":
        decode_sequence = _decode_sequence(space, spec, ())
        return lambda native: decode_sequence({(): native})
    start = getattr(space, "start", 0)
    if kind == "Discrete":
        number = _discrete(space)
        if type(spec) not in (OneHot, Categorical) or spec.ndim > (1 if isinstance(spec, OneHot) else 0):
            return lambda native: number(int(native))
        return number
    if kind == "MultiDiscrete":
        shape, dtype = np.asarray(space.nvec).shape, np.dtype(space.dtype)
        offset = np.zeros(shape, dtype) if start is None else np.broadcast_to(np.asarray(start, dtype), shape)
        if type(spec) is OneHot and spec.ndim > 1:
            return lambda native: native.argmax(-1).astype(dtype) + offset
        return lambda native: np.array(native, dtype).reshape(shape) + offset
    if kind == "Tuple":
        each = [_decode_part(part, _part_spec(spec)) for part in space.spaces]
        rows = tuple(spec.shape)
        if isinstance(spec, Categorical) and spec.shape.numel() == 1:
            # A single number arrives as an int, in however many tuples it is.
            return lambda native: tuple(part(row) for part, row in zip(each, np.reshape(native, rows), strict=True))
        return lambda native: tuple(part(row) for part, row in zip(each, native, strict=True))
    if getattr(space, "dtype", None) is None:
        return None
    # An array is a view of the caller's memory, which environments are free to keep.
    dtype = np.dtype(space.dtype)
    if spec.ndim == 0:
        return lambda native: np.array(native, dtype)
    if dtype == numpy_dtype(spec.dtype):
        return lambda native: native.copy()
    return lambda native: native.astype(dtype)


def _discrete(space: Any) -> Callable[[int], Any]:
    """From a category to the number that the space itself would draw: of its dtype, counted from its start.

    Environments check their actions, and take longer for a Python int than for a number of the space's own dtype.
    """
    first, n, kind = int(getattr(space, "start", 0)), int(space.n), np.dtype(space.dtype).type
    if n > _MANY:
        return lambda category: kind(first + category)
    return tuple(kind(first + category) for category in range(n)).__getitem__


def _decode_sequence(space: Any, spec: Spec, prefix: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Each leaf has a leading dimension for the elements, which the library takes in a tuple, or stacked."""
    element = element_spec(space, spec)
    build = _decode_tree(space.feature_space, element, prefix)
    if isinstance(element, Composite):
        decoders = [(_key(prefix + _tuple(key)), found.many) for key, found in ActionCodec(element).decoders.items()]
    else:
        decoders = [(_key(prefix), ActionCodec(Composite(element=element)).decoders["element"].many)]
    stacked = bool(getattr(space, "stack", False))

    def decode(native: Any) -> Any:
        columns = [many(native[key]) for key, many in decoders]
        keys = [key for key, _ in decoders]
        rows = tuple(build(dict(zip(keys, row, strict=True))) for row in zip(*columns, strict=True))
        return batch_actions(space.feature_space, rows) if stacked else rows

    return decode


def _key(path: tuple[Any, ...]) -> Any:
    """The key in data: a name at the root."""
    return path[0] if len(path) == 1 else path


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _part_spec(spec: Spec) -> Spec:
    """The spec of one part of a stacked Tuple."""
    return spec if isinstance(spec, OneHot) and spec.ndim == 1 else spec[0]


def _decode_part(space: Any, spec: Spec) -> Callable[[Any], Any]:
    """A part of a stacked Tuple arrives as a row: a numpy scalar or an array, a one-hot row for a Discrete."""
    decode = _decode_leaf(space, spec)
    if kind_of(space) != "Discrete":
        return decode or np.array
    number: Callable[[Any], int] = (lambda row: int(row.argmax())) if isinstance(spec, OneHot) else int
    return number if decode is None else lambda row: decode(number(row))
