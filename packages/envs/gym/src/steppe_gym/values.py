"""From the values of a space to the layout of its spec, and back: compiled once, at construction.

``Reader`` takes observations (or anything that is a value of a space) apart into the leaves of a spec: into numpy views
of storage (``write``), or into tensors (``read``) where sizes or types vary. ``action_decoder`` goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack

from steppe.errors import SpecError
from steppe.specs import Categorical, Composite, MultiCategorical, MultiOneHot, NonTensor, OneHot, Spec

from .conversions import conversion_of
from .spaces import space_to_spec

__all__ = ["Leaf", "Reader", "action_decoder", "batch_actions", "row_of", "stack"]

Encode = Callable[[Any, Any], None]
"""``encode(view, value)`` writes a value into a numpy view of its row."""

_CONTAINERS = ("Dict", "Tuple", "Sequence")


@dataclass(frozen=True)
class Leaf:
    """One leaf of a spec, and where its value is in the value of the whole space.

    Attributes:
        key: its key in data: a string, or a tuple.
        path: the names and indices that lead to it in the library's value.
        spec: its spec, without batch dimensions.
        encode: how it is written; None where plain assignment does it.
        space: the space of its values.
        elements: for a Sequence, the leaf of one element; ``spec`` then begins with -1.
        stacked: whether the library stacks the elements of the Sequence.
    """

    key: Any
    path: tuple[Any, ...]
    spec: Spec
    encode: Encode | None = None
    space: Any = None
    elements: Leaf | None = None
    stacked: bool = False

    @property
    def fixed(self) -> bool:
        """Whether its values have a fixed place in an array."""
        return not isinstance(self.spec, NonTensor) and -1 not in self.spec.shape

    def find(self, value: Any) -> Any:
        """Follow ``path`` into the library's value."""
        for part in self.path:
            value = value[part]
        return value

    def tensor(self, value: Any) -> Any:
        """Turn the value of this leaf into a tensor; a value that is no tensor is returned as it is."""
        if isinstance(self.spec, NonTensor):
            return value
        dtype = _numpy_dtype(self.spec.dtype)
        if self.elements is not None:
            element = self.elements
            if self.stacked:
                value = element.find(value)
                rows = [element.tensor(row) for row in value]
            else:
                rows = [element.tensor(element.find(row)) for row in value]
            if rows:
                return torch.stack(rows)
            return torch.zeros((0, *element.spec.shape), dtype=element.spec.dtype)
        array = np.empty(tuple(self.spec.shape), dtype)
        if self.encode is None:
            array[...] = value
        else:
            self.encode(array, value)
        return torch.from_numpy(array)

    def batch(self, value: Any, n: int) -> Any:
        """Turn ``n`` values, stacked as the library stacks them, into one tensor ``[n, *shape]``."""
        if self.encode is None and isinstance(value, np.ndarray) and value.dtype != object:
            dtype = _numpy_dtype(self.spec.dtype)
            return torch.from_numpy(np.array(value, dtype=dtype).reshape((n, *self.spec.shape)))
        return stack([self.tensor(row_of(value, i)) for i in range(n)])


class Reader:
    """Takes values of a space apart into the leaves of a spec.

    Args:
        space: the space of the values.
        spec: the spec that it was converted to; without batch dimensions.
        key: where a spec that is no Composite lies in data; a Composite's own keys go below ``prefix``.
        prefix: the group that everything goes into; empty for the root.
        rename: names of a Dict at the root that have another name in data.
    """

    def __init__(
        self,
        space: Any,
        spec: Spec,
        *,
        key: str = "observation",
        prefix: tuple[str, ...] = (),
        rename: Mapping[str, str] | None = None,
    ) -> None:
        self.space = space
        start = prefix if _kind(space) == "Dict" and isinstance(spec, Composite) else (*prefix, key)
        self.leaves = list(_leaves(space, spec, start, (), rename or {}))
        self.fixed = all(leaf.fixed for leaf in self.leaves)
        #: ``write(value, out)`` copies a value into the numpy views of ``out``.
        self.write = _compile(self.leaves)

    def read(self, value: Any) -> dict[Any, Any]:
        """Return the leaves of one value as new tensors, by key."""
        return {leaf.key: leaf.tensor(leaf.find(value)) for leaf in self.leaves}

    def read_batch(self, value: Any, n: int) -> dict[Any, Any]:
        """Return the leaves of ``n`` values, batched as the library batches them, as tensors ``[n, *shape]``.

        Raises:
            SpecError: a leaf has the wrong shape.
        """
        found = {}
        for leaf in self.leaves:
            try:
                found[leaf.key] = leaf.batch(leaf.find(value), n)
            except (ValueError, IndexError, TypeError) as error:
                raise SpecError(
                    f"{leaf.key!r}: expected {n} values of shape {tuple(leaf.spec.shape)}, "
                    f"found {_described(leaf.find(value))}."
                ) from error
        return found

    def read_rows(self, values: Sequence[Any]) -> dict[Any, Any]:
        """Return the leaves of several values, given one by one, as tensors ``[n, *shape]``."""
        rows = [self.read(value) for value in values]
        return {leaf.key: stack([row[leaf.key] for row in rows]) for leaf in self.leaves}

    def check(self, value: Any, where: str) -> None:
        """Compare the shapes of a value with the spec.

        Raises:
            SpecError: something is missing or has another shape, or is no number.
        """
        for leaf in self.leaves:
            try:
                part = leaf.find(value)
            except (LookupError, TypeError):
                raise SpecError(
                    f"{where}: the library returned no value for {leaf.key!r}, which its observation space has "
                    f"(found {_described(value)})."
                ) from None
            if leaf.fixed and leaf.encode is None:
                _check_plain(leaf, part, where)
            elif leaf.fixed:
                try:
                    leaf.tensor(part)
                except (IndexError, ValueError, TypeError) as error:
                    raise SpecError(
                        f"{where}: {leaf.key!r} is not a value of {self.space}: expected {leaf.spec}, "
                        f"found {_described(part)}."
                    ) from error


def action_decoder(space: Any, spec: Spec, key: Any) -> Callable[[Any], Any] | None:
    """Make the function from native actions to actions of a space, or None where they are the same.

    A native action is what the array path hands over: an int for a single one-hot or categorical action, an array
    otherwise, and a dict of these by key where ``spec`` has several leaves.

    Args:
        space: the action space.
        spec: the spec that it was converted to; without batch dimensions.
        key: the key of the action in data; leaves of a Composite have tuple keys below it.
    """
    if not isinstance(spec, Composite):
        return _decode_leaf(space, spec)
    prefix = (key,) if isinstance(key, str) else tuple(key)
    build = _decode_tree(space, spec, prefix)
    only = list(_leaf_keys(spec, prefix))
    if len(only) == 1:
        return lambda native: build({only[0]: native})
    return build


def batch_actions(space: Any, rows: Sequence[Any]) -> Any:
    """Actions of several rows as a vector environment takes them: arrays, in the containers of the space."""
    kind = _kind(space)
    if kind == "Dict":
        return {name: batch_actions(part, [row[name] for row in rows]) for name, part in space.spaces.items()}
    if kind == "Tuple":
        return tuple(batch_actions(part, [row[i] for row in rows]) for i, part in enumerate(space.spaces))
    if kind in ("Text", "Sequence"):
        return tuple(rows)
    return np.stack([np.asarray(row, space.dtype) for row in rows])


def row_of(value: Any, row: int) -> Any:
    """One row of a batched value: of each array in the containers of its space."""
    if isinstance(value, Mapping):
        return {name: row_of(part, row) for name, part in value.items()}
    if isinstance(value, tuple) and all(isinstance(part, np.ndarray) for part in value):
        return tuple(part[row] for part in value)
    return value[row]


def stack(rows: Sequence[Any]) -> Any:
    """Rows as one tensor; values that are no tensors as a non-tensor stack."""
    if isinstance(rows[0], torch.Tensor):
        return torch.stack(list(rows))
    return NonTensorStack(*[NonTensorData(row) for row in rows])


def _leaf_keys(spec: Composite, prefix: tuple[Any, ...]) -> Any:
    for name, part in spec.items():
        if isinstance(part, Composite):
            yield from _leaf_keys(part, (*prefix, name))
        else:
            yield (*prefix, name)


def _decode_tree(space: Any, spec: Spec, prefix: tuple[Any, ...]) -> Callable[[Any], Any]:
    if not isinstance(spec, Composite):
        decode = _decode_leaf(space, spec)
        if decode is None:
            return lambda native: native[prefix]
        return lambda native: decode(native[prefix])
    kind = _kind(space)
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
    kind = _kind(space)
    start = getattr(space, "start", 0)
    if kind == "Discrete":
        first = int(start)
        if not isinstance(spec, OneHot | Categorical) or spec.ndim > (1 if isinstance(spec, OneHot) else 0):
            return lambda native: int(native) + first
        return (lambda native: native + first) if first else None
    if kind == "MultiDiscrete":
        shape, dtype = np.asarray(space.nvec).shape, np.dtype(space.dtype)
        offset = np.zeros(shape, dtype) if start is None else np.broadcast_to(np.asarray(start, dtype), shape)
        if isinstance(spec, OneHot) and spec.ndim > 1:
            return lambda native: native.argmax(-1).astype(dtype) + offset
        return lambda native: np.array(native, dtype).reshape(shape) + offset
    if kind == "Tuple":
        each = [_decode_leaf(part, _part_spec(spec)) or _unwrapped(part) for part in space.spaces]
        if isinstance(spec, OneHot):
            return lambda native: tuple(part(int(row.argmax())) for part, row in zip(each, native, strict=True))
        return lambda native: tuple(part(row) for part, row in zip(each, native, strict=True))
    if getattr(space, "dtype", None) is None:
        return None
    # An array is a view of the caller's memory, which environments are free to keep.
    dtype = np.dtype(space.dtype)
    if spec.ndim == 0:
        return lambda native: np.array(native, dtype)
    if dtype == _numpy_dtype(spec.dtype):
        return lambda native: native.copy()
    return lambda native: native.astype(dtype)


def _part_spec(spec: Spec) -> Spec:
    """The spec of one part of a stacked Tuple."""
    return spec if isinstance(spec, OneHot) and spec.ndim == 1 else spec[0]


def _unwrapped(space: Any) -> Callable[[Any], Any]:
    """A part of a stacked Tuple arrives as a numpy scalar or array."""
    return int if _kind(space) == "Discrete" else np.array


def _leaves(space: Any, spec: Spec, key: tuple[str, ...], path: tuple[Any, ...], rename: Mapping[str, str]) -> Any:
    conversion = conversion_of(space)
    kind = _kind(space)
    if kind == "Sequence" and conversion.encode is None:
        yield from _sequence_leaves(space, spec, key, path)
    elif isinstance(spec, Composite):
        names = list(space.spaces) if kind == "Dict" else range(len(space.spaces))
        for name in names:
            part = str(name)
            yield from _leaves(space.spaces[name], spec[part], (*key, rename.get(part, part)), (*path, name), {})
    else:
        yield Leaf(key[0] if len(key) == 1 else key, path, spec, _encoder(space, spec), space)


def _sequence_leaves(space: Any, spec: Spec, key: tuple[str, ...], path: tuple[Any, ...]) -> Any:
    integers = isinstance(spec, Categorical) and not isinstance(spec, OneHot)
    element_spec = space_to_spec(space.feature_space, categorical_action_encoding=integers)
    for element in _leaves(space.feature_space, element_spec, key, (), {}):
        inner = element.key if isinstance(element.key, tuple) else (element.key,)
        leaf_spec = spec
        for part in inner[len(key) :]:
            leaf_spec = leaf_spec[part]
        yield Leaf(element.key, path, leaf_spec, None, space, element, bool(getattr(space, "stack", False)))


def _encoder(space: Any, spec: Spec) -> Encode | None:
    """How a value is written into its row; None where ``view[...] = value`` does it."""
    conversion = conversion_of(space)
    if conversion.encode is not None:
        convert = conversion.encode

        def converted(view: Any, value: Any) -> None:
            view[...] = convert(space, value)

        return converted
    kind = _kind(space)
    if kind == "Tuple":
        parts = [_encoder(part, spec[0] if spec.ndim > 1 else spec) for part in space.spaces]
        if all(part is None for part in parts):
            return None
        encoders = [part or _assign for part in parts]

        def stacked(view: Any, value: Any) -> None:
            for i, encode in enumerate(encoders):
                encode(view[i, ...], value[i])

        return stacked
    start = getattr(space, "start", 0)
    start = 0 if start is None else start
    if isinstance(spec, MultiOneHot):
        counts = np.asarray(space.nvec)
        offsets = np.concatenate([[0], np.cumsum(counts)[:-1]]) - np.asarray(start)

        def multi_one_hot(view: Any, value: Any) -> None:
            view[...] = 0
            view[offsets + value] = 1

        return multi_one_hot
    if isinstance(spec, OneHot):
        if spec.ndim == 1 and kind == "Discrete":
            first = int(start)

            def one_hot(view: Any, value: Any) -> None:
                view[...] = 0
                view[int(value) - first] = 1

            return one_hot
        rows = np.arange(spec.space.n) + np.asarray(start)[..., None]

        def grid(view: Any, value: Any) -> None:
            view[...] = np.asarray(value)[..., None] == rows

        return grid
    if isinstance(spec, Categorical | MultiCategorical) and np.any(start):
        offset = np.asarray(start)

        def shifted(view: Any, value: Any) -> None:
            view[...] = value - offset

        return shifted
    return None


def _assign(view: Any, value: Any) -> None:
    view[...] = value


def _compile(leaves: Sequence[Leaf]) -> Callable[[Any, Any], None]:
    """One function that writes all leaves, with a shorter one for the usual single array."""
    if len(leaves) == 1 and not leaves[0].path:
        key, encode = leaves[0].key, leaves[0].encode
        if encode is None:

            def write_plain(value: Any, out: Any) -> None:
                out[key][...] = value

            return write_plain
        encode_only = encode

        def write_encoded(value: Any, out: Any) -> None:
            encode_only(out[key], value)

        return write_encoded
    if all(len(leaf.path) == 1 for leaf in leaves):
        flat = [(leaf.key, leaf.path[0], leaf.encode or _assign) for leaf in leaves]

        def write_flat(value: Any, out: Any) -> None:
            for key, name, encode in flat:
                encode(out[key], value[name])

        return write_flat
    deep = [(leaf.key, leaf.find, leaf.encode or _assign) for leaf in leaves]

    def write_deep(value: Any, out: Any) -> None:
        for key, find, encode in deep:
            encode(out[key], find(value))

    return write_deep


def _check_plain(leaf: Leaf, value: Any, where: str) -> None:
    expected, found = tuple(leaf.spec.shape), np.shape(value)
    if found != expected:
        raise SpecError(
            f"{where}: {leaf.key!r} must have shape {expected}, as its space says; the library returned {found}."
        )
    kind = np.asarray(value).dtype
    if kind.kind not in "biuf":
        raise SpecError(f"{where}: {leaf.key!r} must be of dtype {leaf.spec.dtype}; the library returned {kind}.")


def _described(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape is not None else repr(value)[:60]


def _kind(space: Any) -> str | None:
    """The name of the library's own class that a space is, or derives from."""
    for cls in type(space).__mro__:
        if cls.__module__.partition(".")[0] in ("gym", "gymnasium") and cls.__name__ != "Space":
            return cls.__name__
    return None


@cache
def _numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    found: np.dtype[Any] = torch.empty(0, dtype=dtype).numpy().dtype
    return found
