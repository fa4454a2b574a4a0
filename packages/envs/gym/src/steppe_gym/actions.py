"""Convert decoded actions to values of a library's action space.

The functions that convert are compiled at construction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import ActionCodec
from steppe.specs import Categorical, Composite, NonTensor, OneHot, Spec

from .conversions import conversion_of
from .spaces import element_spec, torch_dtype
from .values import kind_of, numpy_dtype

__all__ = ["action_decoder", "batch_actions", "joint_choice", "joint_decoder"]

#: Up to this many categories, the numbers of a Discrete space are made in advance.
_MAX_TABLE = 4096


def action_decoder(space: Any, spec: Spec, key: Any) -> Callable[[Any], Any] | None:
    """Make the function that converts decoded actions to values of a space.

    Returns None if they are equal. The array path decodes a single one-hot or categorical action to an int, other
    actions to an array, and actions of several leaves to a dict of these by key.

    >>> from gymnasium import spaces
    >>> from steppe import Bounded, Categorical
    >>> from steppe_gym import action_decoder
    >>> decode = action_decoder(spaces.Discrete(3, start=-1), Categorical(3), "action")
    >>> [int(decode(number)) for number in (0, 2)]
    [-1, 1]
    >>> action_decoder(spaces.Box(-1, 1, (2,)), Bounded(-1.0, 1.0, shape=(2,)), "action") is None
    True

    Args:
        space: the action space.
        spec: the spec of the space, without batch dimensions.
        key: the key of the action in data. Leaves of a Composite have tuple keys below it; ``()`` means the root.
    """
    if not isinstance(spec, Composite):
        return _decode_leaf(space, spec)
    prefix = (key,) if isinstance(key, str) else tuple(key)
    build = _decode_tree(space, spec, prefix)
    leaf_keys = list(_leaf_keys(spec, prefix))
    if len(leaf_keys) == 1:
        name = _key(leaf_keys[0])
        return lambda decoded: build({name: decoded})
    return build


def joint_choice(
    space: Any, observation: Spec, categorical_action_encoding: bool = False, device: torch.device | None = None
) -> Spec | None:
    """Make the spec of a MultiDiscrete as one choice among all combinations.

    This needs an observation ``"action_mask"`` of combinations. A mask of shape ``[n, m]`` allows pairs of values. It
    cannot be expressed as one mask for each of two choices.

    Returns:
        A Categorical or OneHot of ``n * m`` categories, in the order of the flattened mask. None if the space is not a
        MultiDiscrete, or the observation has no mask of its combinations.
    """
    if kind_of(space) != "MultiDiscrete" or not isinstance(observation, Composite):
        return None
    counts = np.asarray(space.nvec)
    mask = observation.get("action_mask", None)
    if counts.ndim != 1 or mask is None or isinstance(mask, Composite):
        return None
    n = int(counts.prod())
    flat = (n,) if n != counts.sum() else None  # otherwise it is a mask of each choice, end to end
    if tuple(mask.shape) not in (tuple(counts), flat):
        return None
    if categorical_action_encoding:
        return Categorical(n, device=device, dtype=torch_dtype(space.dtype))
    return OneHot(n, device=device, dtype=torch.bool)


def joint_decoder(space: Any) -> Callable[[Any], Any]:
    """Make the function that converts a joint choice to a MultiDiscrete action.

    :func:`joint_choice` makes the spec of the choice.
    """
    counts, dtype = tuple(int(n) for n in space.nvec), np.dtype(space.dtype)
    start = getattr(space, "start", None)
    offset = np.zeros(len(counts), dtype) if start is None else np.asarray(start, dtype)
    return lambda decoded: np.array(np.unravel_index(int(decoded), counts), dtype) + offset


def batch_actions(space: Any, rows: Sequence[Any]) -> Any:
    """Batch the actions of several rows for a vector environment.

    The result has arrays, in the containers of the space.
    """
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


def _leaf_keys(spec: Composite, prefix: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
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
            return lambda decoded: decoded[key]
        return lambda decoded: decode(decoded[key])
    names = list(space.spaces) if kind == "Dict" else range(len(space.spaces))
    parts = [(name, _decode_tree(space.spaces[name], spec[str(name)], (*prefix, str(name)))) for name in names]
    if kind == "Dict":
        return lambda decoded: {name: part(decoded) for name, part in parts}
    return lambda decoded: tuple(part(decoded) for _, part in parts)


def _decode_leaf(space: Any, spec: Spec) -> Callable[[Any], Any] | None:
    conversion = conversion_of(space)
    if conversion.decode is not None:
        convert = conversion.decode
        return lambda decoded: convert(space, decoded)
    if isinstance(spec, NonTensor):
        return None
    kind = kind_of(space)
    if kind == "Sequence":
        decode_sequence = _decode_sequence(space, spec, ())
        return lambda decoded: decode_sequence({(): decoded})
    start = getattr(space, "start", 0)
    if kind == "Discrete":
        to_number = _discrete(space)
        if type(spec) not in (OneHot, Categorical) or spec.ndim > (1 if isinstance(spec, OneHot) else 0):
            return lambda decoded: to_number(int(decoded))
        return to_number
    if kind == "MultiDiscrete":
        shape, dtype = np.asarray(space.nvec).shape, np.dtype(space.dtype)
        offset = np.zeros(shape, dtype) if start is None else np.broadcast_to(np.asarray(start, dtype), shape)
        if type(spec) is OneHot and spec.ndim > 1:
            return lambda decoded: decoded.argmax(-1).astype(dtype) + offset
        return lambda decoded: np.array(decoded, dtype).reshape(shape) + offset
    if kind == "Tuple":
        decoders = [_decode_part(part, _part_spec(spec)) for part in space.spaces]
        rows = tuple(spec.shape)
        if isinstance(spec, Categorical) and spec.shape.numel() == 1:
            # A single number arrives as an int, even if it is in nested tuples.
            return lambda decoded: tuple(
                part(row) for part, row in zip(decoders, np.reshape(decoded, rows), strict=True)
            )
        return lambda decoded: tuple(part(row) for part, row in zip(decoders, decoded, strict=True))
    if getattr(space, "dtype", None) is None:
        return None
    dtype = np.dtype(space.dtype)
    if spec.ndim == 0:
        return lambda decoded: np.array(decoded, dtype)
    if dtype == numpy_dtype(spec.dtype):
        return None
    return lambda decoded: decoded.astype(dtype)


def _discrete(space: Any) -> Callable[[int], Any]:
    """Make the function that converts a category to a number of the space.

    The number has the dtype and the start of the space. Environments validate actions, which takes longer for a Python
    int than for a number of the space's dtype.
    """
    first, n, kind = int(getattr(space, "start", 0)), int(space.n), np.dtype(space.dtype).type
    if n > _MAX_TABLE:
        return lambda category: kind(first + category)
    return tuple(kind(first + category) for category in range(n)).__getitem__


def _decode_sequence(space: Any, spec: Spec, prefix: tuple[Any, ...]) -> Callable[[Any], Any]:
    """Make the function that converts actions of a Sequence.

    The elements along the first dimension become a tuple, or a stacked array.
    """
    element = element_spec(space, spec)
    build = _decode_tree(space.feature_space, element, prefix)
    if isinstance(element, Composite):
        decoders = [
            (_key(prefix + _tuple(key)), decoder.many) for key, decoder in ActionCodec(element).decoders.items()
        ]
    else:
        decoders = [(_key(prefix), ActionCodec(Composite(element=element)).decoders["element"].many)]
    stacked = bool(getattr(space, "stack", False))

    def decode(decoded: Any) -> Any:
        columns = [many(decoded[key]) for key, many in decoders]
        keys = [key for key, _ in decoders]
        rows = tuple(build(dict(zip(keys, row, strict=True))) for row in zip(*columns, strict=True))
        return batch_actions(space.feature_space, rows) if stacked else rows

    return decode


def _key(path: tuple[Any, ...]) -> Any:
    """Return the key in data: a name at the root, otherwise a tuple."""
    return path[0] if len(path) == 1 else path


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _part_spec(spec: Spec) -> Spec:
    """Return the spec of one part of a stacked Tuple."""
    return spec if spec.one_hot_sizes is not None and spec.ndim == 1 else spec[0]


def _decode_part(space: Any, spec: Spec) -> Callable[[Any], Any]:
    """Make the function for a part of a stacked Tuple.

    The part is a numpy scalar, an array, or a one-hot vector.
    """
    decode = _decode_leaf(space, spec)
    if kind_of(space) != "Discrete":
        return decode or np.array
    to_number: Callable[[Any], int] = (lambda row: int(row.argmax())) if spec.one_hot_sizes is not None else int
    return to_number if decode is None else lambda row: decode(to_number(row))
