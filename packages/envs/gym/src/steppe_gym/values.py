"""From the values of a space to the layout of its spec: compiled once, at construction.

``SpaceReader`` takes observations (or anything that is a value of a space) apart into the leaves of a spec: into numpy
views of storage (``write``), or into tensors (``read``) where sizes or types vary. ``actions`` goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack

from steppe.envs import wrong_shape
from steppe.errors import SpecError
from steppe.specs import Categorical, Composite, MultiOneHot, NonTensor, OneHot, Spec

from .conversions import conversion_of
from .spaces import element_spec

__all__ = ["Leaf", "SpaceReader", "kind_of", "numpy_dtype", "row_of", "stack"]

Encode = Callable[[Any, Any], None]
"""``encode(view, value)`` writes a value into a numpy view of its row, or raises ``_Misshapen``."""


class _Misshapen(Exception):
    """A value that numpy would repeat until it fills its place, which has the shape ``expected``."""

    def __init__(self, expected: tuple[int, ...], value: Any) -> None:
        super().__init__(expected, value)
        self.expected = expected
        self.value = value


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
            # A sequence would be taken for rows.
            return value if isinstance(value, str) else NonTensorData(value)
        dtype = numpy_dtype(self.spec.dtype)
        if self.elements is not None:
            element = self.elements
            if self.stacked:
                value = element.find(value)
                rows = [element.tensor(row) for row in value]
            else:
                rows = [element.tensor(element.find(row)) for row in value]
            if rows:
                return torch.stack(rows)
            return torch.zeros((0, *element.spec.shape), dtype=element.spec.dtype, device="cpu")
        array = np.empty(tuple(self.spec.shape), dtype)
        self.write(array, value)
        return torch.from_numpy(array)

    @cached_property
    def write(self) -> Callable[[Any, Any], None]:
        """``write(view, value)`` copies a value into a numpy view of its row; SpecError where the shape is another."""
        key, shape, encode = self.key, tuple(self.spec.shape), self.encode
        if encode is not None:

            def write_encoded(view: Any, value: Any) -> None:
                try:
                    encode(view, value)
                except _Misshapen as error:
                    raise wrong_shape(key, error.expected, error.value, space=True) from None

            return write_encoded

        def write_plain(view: Any, value: Any) -> None:
            try:
                if value.shape != shape:
                    raise wrong_shape(key, shape, value, space=True)
            except AttributeError:  # a number or a list
                value = np.asarray(value)
                if value.shape != shape:
                    raise wrong_shape(key, shape, value, space=True) from None
            view[...] = value

        return write_plain

    def batch(self, value: Any, n: int) -> Any:
        """Turn ``n`` values, stacked as the library stacks them, into one tensor ``[n, *shape]``."""
        if self.encode is None and isinstance(value, np.ndarray) and value.dtype != object:
            dtype = numpy_dtype(self.spec.dtype)
            return torch.from_numpy(np.array(value, dtype=dtype).reshape((n, *self.spec.shape)))
        return stack([self.tensor(row_of(self.space, value, i)) for i in range(n)])


class SpaceReader:
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
        start = prefix if kind_of(space) == "Dict" and isinstance(spec, Composite) else (*prefix, key)
        self.leaves = list(_leaves(space, spec, start, (), rename or {}))
        self.fixed = all(leaf.fixed for leaf in self.leaves)
        only = self.leaves[0] if len(self.leaves) == 1 else None
        #: The only leaf, where its value is the whole value and assignment writes it; None otherwise.
        self.plain = only if only is not None and only.fixed and not only.path and only.encode is None else None
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


def row_of(space: Any, value: Any, row: int) -> Any:
    """One row of a batched value: of each array in the containers of its space."""
    if isinstance(value, Mapping):
        parts = getattr(space, "spaces", {})
        return {name: row_of(parts.get(name), inner, row) for name, inner in value.items()}
    # An array of objects has a whole value in each row.
    if kind_of(space) == "Tuple" and not isinstance(value, np.ndarray):
        return tuple(row_of(part, inner, row) for part, inner in zip(space.spaces, value, strict=True))
    return value[row]


def stack(rows: Sequence[Any]) -> Any:
    """Rows as one tensor; values that are no tensors as a non-tensor stack."""
    if isinstance(rows[0], torch.Tensor):
        return torch.stack(list(rows))
    return NonTensorStack(*[row if isinstance(row, NonTensorData) else NonTensorData(row) for row in rows])


def _leaves(space: Any, spec: Spec, key: tuple[str, ...], path: tuple[Any, ...], rename: Mapping[str, str]) -> Any:
    conversion = conversion_of(space)
    kind = kind_of(space)
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
    for element in _leaves(space.feature_space, element_spec(space, spec), key, (), {}):
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
            _assign(view, convert(space, value))

        return converted
    kind = kind_of(space)
    if kind == "Tuple":
        parts = [_encoder(part, spec[0] if spec.ndim > 1 else spec) for part in space.spaces]
        if all(part is None for part in parts):
            return None
        encoders = [part or _assign for part in parts]

        def stacked(view: Any, value: Any) -> None:
            if len(value) != len(encoders):
                raise _Misshapen(view.shape, value)
            for i, encode in enumerate(encoders):
                encode(view[i, ...], value[i])

        return stacked
    start = getattr(space, "start", 0)
    start = 0 if start is None else start
    if isinstance(spec, MultiOneHot):
        counts = np.asarray(space.nvec)
        offsets = np.concatenate([[0], np.cumsum(counts)[:-1]]) - np.asarray(start)

        def multi_one_hot(view: Any, value: Any) -> None:
            if np.shape(value) != counts.shape:
                raise _Misshapen(counts.shape, value)
            view[...] = 0
            view[offsets + value] = 1

        return multi_one_hot
    if isinstance(spec, OneHot):
        if spec.ndim == 1 and kind == "Discrete":
            first, n = int(start), int(spec.space.n)

            def one_hot(view: Any, value: Any) -> None:
                place = int(value) - first
                if not 0 <= place < n:
                    raise SpecError(f"The library returned {value!r}, which is not in its {space}.")
                view[...] = 0
                view[place] = 1

            return one_hot
        rows = np.arange(spec.space.n) + np.asarray(start)[..., None]

        def grid(view: Any, value: Any) -> None:
            if np.shape(value) != view.shape[:-1]:
                raise _Misshapen(view.shape[:-1], value)
            view[...] = np.asarray(value)[..., None] == rows

        return grid
    if (kind == "MultiDiscrete" or isinstance(spec, Categorical)) and np.any(start):
        offset = np.asarray(start)

        def shifted(view: Any, value: Any) -> None:
            if np.shape(value) != view.shape:
                raise _Misshapen(view.shape, value)
            view[...] = value - offset

        return shifted
    return None


def _assign(view: Any, value: Any) -> None:
    found = np.shape(value)
    if found != view.shape:
        raise _Misshapen(view.shape, value)
    view[...] = value


def _compile(leaves: Sequence[Leaf]) -> Callable[[Any, Any], None]:
    """One function that writes all leaves, with a shorter one for the usual single array."""
    if len(leaves) == 1 and not leaves[0].path:
        only, write = leaves[0].key, leaves[0].write

        def write_only(value: Any, out: Any) -> None:
            write(out[only], value)

        return write_only if leaves[0].encode is not None else _plain_writer(leaves[0])
    if all(len(leaf.path) == 1 for leaf in leaves):
        flat = [(leaf.key, leaf.path[0], leaf.write) for leaf in leaves]

        def write_flat(value: Any, out: Any) -> None:
            for key, name, write in flat:
                write(out[key], value[name])

        return write_flat
    deep = [(leaf.key, leaf.find, leaf.write) for leaf in leaves]

    def write_deep(value: Any, out: Any) -> None:
        for key, find, write in deep:
            write(out[key], find(value))

    return write_deep


def _plain_writer(leaf: Leaf) -> Callable[[Any, Any], None]:
    """What most environments need: one array, with a call less."""
    key, shape = leaf.key, tuple(leaf.spec.shape)

    def write(value: Any, out: Any) -> None:
        try:
            if value.shape != shape:
                raise wrong_shape(key, shape, value, space=True)
        except AttributeError:  # a number or a list
            leaf.write(out[key], value)
        else:
            out[key][...] = value

    return write


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


def kind_of(space: Any) -> str | None:
    """The name of the library's own class that a space is, or derives from."""
    for cls in type(space).__mro__:
        if cls.__module__.partition(".")[0] in ("gym", "gymnasium") and cls.__name__ != "Space":
            return cls.__name__
    return None


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype[Any]:
    found: np.dtype[Any] = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
    return found
