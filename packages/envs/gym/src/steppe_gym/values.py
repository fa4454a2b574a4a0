"""SpaceReader: read values of a space into the leaves of a spec.

It writes into numpy views of storage (``write``), or makes tensors (``read``) if sizes or types vary. Its functions are
compiled once, at construction. The module ``actions`` converts in the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack

from steppe.envs import as_numbers, wrong_shape
from steppe.errors import SpecError
from steppe.specs import Categorical, Composite, MultiOneHot, NonTensor, OneHot, Spec

from .conversions import conversion_of
from .spaces import element_spec

__all__ = ["Leaf", "SpaceReader", "kind_of", "numpy_dtype", "row_of", "stack"]

Encode = Callable[[np.ndarray, Any], None]
"""``encode(view, value)`` writes a value into a numpy view of its row, or raises ``_WrongShape``."""


class _WrongShape(Exception):
    """A value has another shape than ``expected``, and numpy would broadcast it."""

    def __init__(self, expected: tuple[int, ...], value: Any) -> None:
        super().__init__(expected, value)
        self.expected = expected
        self.value = value


_CONTAINERS = ("Dict", "Tuple", "Sequence")


@dataclass(frozen=True)
class Leaf:
    """One leaf of a spec, and the path of its value in values of the space.

    Attributes:
        key: its key in data, a string or a tuple.
        path: the names and indices of its value in the library's value.
        spec: its spec, without batch dimensions.
        encode: the function that writes it. ``None``: assignment is enough.
        space: the space of its values.
        elements: for a Sequence, the leaf of one element; the shape of ``spec`` then begins with -1.
        stacked: whether the library stacks the elements of a Sequence.
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
        """Whether its values are tensors of a fixed shape."""
        return not isinstance(self.spec, NonTensor) and -1 not in self.spec.shape

    def find(self, value: Any) -> Any:
        """Follow ``path`` into the library's value."""
        for part in self.path:
            value = value[part]
        return value

    def tensor(self, value: Any) -> Any:
        """Convert the value of this leaf to a tensor.

        Non-tensor values are returned as non-tensor data.
        """
        if isinstance(self.spec, NonTensor):
            # Without NonTensorData, tensordict would treat a sequence as rows.
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
        """Function ``write(view, value)`` that copies a value into its row.

        It raises SpecError if the shape is wrong.
        """
        if not self.fixed:

            def write_loose(view: Any, value: Any) -> None:
                view[...] = self.tensor(value)

            return write_loose
        key, shape, encode, space = self.key, tuple(self.spec.shape), self.encode, self.space
        if encode is not None:

            def write_encoded(view: np.ndarray, value: Any) -> None:
                try:
                    encode(view, value)
                except _WrongShape as error:
                    raise wrong_shape(key, error.expected, error.value, space=True) from None
                except (TypeError, ValueError, IndexError) as error:
                    if isinstance(error, SpecError):
                        raise
                    raise SpecError(f"{key!r} is not a value of {space}; the library returned {value!r}.") from error

            return write_encoded

        dtype = numpy_dtype(self.spec.dtype)

        def write_plain(view: np.ndarray, value: Any) -> None:
            try:
                if value.shape != shape:
                    raise wrong_shape(key, shape, value, space=True)
                is_number = value.dtype is dtype or value.dtype.kind in "biuf"
            except AttributeError:  # a number, a list or a tensor
                is_number = False
            if not is_number:
                value = as_numbers(key, value, shape)
                if value.shape != shape:
                    raise wrong_shape(key, shape, value, space=True)
            view[...] = value

        return write_plain

    def batch(self, value: Any, n: int) -> Any:
        """Convert ``n`` values, batched by the library, to one tensor ``[n, *shape]``."""
        if self.encode is None and isinstance(value, np.ndarray) and value.dtype != object:
            dtype = numpy_dtype(self.spec.dtype)
            return torch.from_numpy(np.array(value, dtype=dtype).reshape((n, *self.spec.shape)))
        return stack([self.tensor(row_of(self.space, value, i)) for i in range(n)])


class SpaceReader:
    """Read values of a space into the leaves of a spec.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from steppe_gym import SpaceReader, space_to_spec
    >>> space = spaces.Dict(camera=spaces.Box(0, 255, (2, 2), np.uint8), gear=spaces.Discrete(5))
    >>> reader = SpaceReader(space, space_to_spec(space, categorical_action_encoding=True))
    >>> reader.read({"camera": np.ones((2, 2), np.uint8), "gear": 3})
    {'camera': tensor([[1, 1],
            [1, 1]], dtype=torch.uint8), 'gear': tensor(3)}

    Args:
        space: the space of the values.
        spec: the spec of the space, without batch dimensions.
        key: the key in data of a spec that is not the Composite of a Dict.
        prefix: the key of the group that contains all leaves; empty for the root.
        rename: new names for entries of a Dict.
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
        #: The leaf, if there is only one, its value is the whole value and assignment writes it. Otherwise None.
        self.plain = only if only is not None and only.fixed and not only.path and only.encode is None else None
        #: ``write(value, out)`` copies a value into the numpy views of ``out``.
        self.write = _compile(self.leaves)

    def read(self, value: Any) -> dict[Any, Any]:
        """Return the leaves of one value as new tensors, by key."""
        return {leaf.key: leaf.tensor(leaf.find(value)) for leaf in self.leaves}

    def read_batch(self, value: Any, n: int) -> dict[Any, Any]:
        """Return the leaves of ``n`` batched values as tensors ``[n, *shape]``.

        The library has batched the values.

        Raises:
            SpecError: a leaf has the wrong shape.
        """
        result = {}
        for leaf in self.leaves:
            try:
                result[leaf.key] = leaf.batch(leaf.find(value), n)
            except (ValueError, IndexError, TypeError) as error:
                raise SpecError(
                    f"{leaf.key!r}: expected {n} values of shape {tuple(leaf.spec.shape)}, "
                    f"found {_described(leaf.find(value))}."
                ) from error
        return result

    def read_rows(self, values: Sequence[Any]) -> dict[Any, Any]:
        """Return the leaves of a list of values as tensors ``[n, *shape]``."""
        rows = [self.read(value) for value in values]
        return {leaf.key: stack([row[leaf.key] for row in rows]) for leaf in self.leaves}

    def check(self, value: Any, where: str) -> None:
        """Validate the shapes of a value against the spec.

        Raises:
            SpecError: a leaf is missing, has another shape, or is not a number.
        """
        for leaf in self.leaves:
            try:
                part = leaf.find(value)
            except (LookupError, TypeError):
                raise SpecError(
                    f"{where}: the library returned no value for {leaf.key!r} of its observation space, found "
                    f"{_described(value)}."
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
    """Return one row of a batched value, as a value of the space."""
    if isinstance(value, Mapping):
        parts = getattr(space, "spaces", {})
        return {name: row_of(parts.get(name), inner, row) for name, inner in value.items()}
    # Each row of an array of objects is a value of the space.
    if kind_of(space) == "Tuple" and not isinstance(value, np.ndarray):
        return tuple(row_of(part, inner, row) for part, inner in zip(space.spaces, value, strict=True))
    return value[row]


def stack(rows: Sequence[Any]) -> Any:
    """Stack rows to one tensor; non-tensor values to a NonTensorStack."""
    if isinstance(rows[0], torch.Tensor):
        return torch.stack(list(rows))
    return NonTensorStack(*[row if isinstance(row, NonTensorData) else NonTensorData(row) for row in rows])


def _leaves(
    space: Any, spec: Spec, key: tuple[str, ...], path: tuple[Any, ...], rename: Mapping[str, str]
) -> Iterator[Leaf]:
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


def _sequence_leaves(space: Any, spec: Spec, key: tuple[str, ...], path: tuple[Any, ...]) -> Iterator[Leaf]:
    for element in _leaves(space.feature_space, element_spec(space, spec), key, (), {}):
        inner = element.key if isinstance(element.key, tuple) else (element.key,)
        leaf_spec = spec
        for part in inner[len(key) :]:
            leaf_spec = leaf_spec[part]
        yield Leaf(element.key, path, leaf_spec, None, space, element, bool(getattr(space, "stack", False)))


def _encoder(space: Any, spec: Spec) -> Encode | None:
    """Return the function that writes a value into its row.

    Returns None if ``view[...] = value`` does it.
    """
    conversion = conversion_of(space)
    if conversion.encode is not None:
        convert = conversion.encode

        def converted(view: np.ndarray, value: Any) -> None:
            _assign(view, convert(space, value))

        return converted
    kind = kind_of(space)
    if kind == "Tuple":
        parts = [_encoder(part, spec[0] if spec.ndim > 1 else spec) for part in space.spaces]
        if all(part is None for part in parts):
            return None
        encoders = [part or _assign for part in parts]

        def stacked(view: np.ndarray, value: Any) -> None:
            if len(value) != len(encoders):
                raise _WrongShape(view.shape, value)
            for i, encode in enumerate(encoders):
                encode(view[i, ...], value[i])

        return stacked
    start = getattr(space, "start", 0)
    start = 0 if start is None else start
    if isinstance(spec, MultiOneHot):
        counts = np.asarray(space.nvec)
        offsets = np.concatenate([[0], np.cumsum(counts)[:-1]]) - np.asarray(start)

        def multi_one_hot(view: np.ndarray, value: Any) -> None:
            if np.shape(value) != counts.shape:
                raise _WrongShape(counts.shape, value)
            view[...] = 0
            view[offsets + value] = 1

        return multi_one_hot
    if isinstance(spec, OneHot):
        if spec.ndim == 1 and kind == "Discrete":
            first, n = int(start), int(spec.space.n)

            def one_hot(view: np.ndarray, value: Any) -> None:
                index = int(value) - first
                if not 0 <= index < n:
                    raise SpecError(f"The library returned {value!r}, which is not in its {space}.")
                view[...] = 0
                view[index] = 1

            return one_hot
        rows = np.arange(spec.space.n) + np.asarray(start)[..., None]

        def grid(view: np.ndarray, value: Any) -> None:
            if np.shape(value) != view.shape[:-1]:
                raise _WrongShape(view.shape[:-1], value)
            view[...] = np.asarray(value)[..., None] == rows

        return grid
    if (kind == "MultiDiscrete" or isinstance(spec, Categorical)) and np.any(start):
        offset = np.asarray(start)

        def shifted(view: np.ndarray, value: Any) -> None:
            if np.shape(value) != view.shape:
                raise _WrongShape(view.shape, value)
            view[...] = value - offset

        return shifted
    return None


def _assign(view: np.ndarray, value: Any) -> None:
    numbers = np.asarray(value)
    if numbers.shape != view.shape:
        raise _WrongShape(view.shape, value)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(value)  # numpy would make NaN of None
    view[...] = numbers


def _compile(leaves: Sequence[Leaf]) -> Callable[[Any, Any], None]:
    """Make the function that writes all leaves, with a faster one for a single array."""
    if len(leaves) == 1 and not leaves[0].path:
        only, write = leaves[0].key, leaves[0].write

        def write_only(value: Any, out: dict[Any, np.ndarray]) -> None:
            write(out[only], value)

        return write_only if leaves[0].encode is not None else _plain_writer(leaves[0])
    if all(len(leaf.path) == 1 for leaf in leaves):
        flat = [(leaf.key, leaf.path[0], leaf.write) for leaf in leaves]

        def write_flat(value: Any, out: dict[Any, np.ndarray]) -> None:
            for key, name, write in flat:
                write(out[key], value[name])

        return write_flat
    deep = [(leaf.key, leaf.find, leaf.write) for leaf in leaves]

    def write_deep(value: Any, out: dict[Any, np.ndarray]) -> None:
        for key, find, write in deep:
            write(out[key], find(value))

    return write_deep


def _plain_writer(leaf: Leaf) -> Callable[[Any, Any], None]:
    """Make the function that writes a single array, with one call less."""
    key, shape, dtype = leaf.key, tuple(leaf.spec.shape), numpy_dtype(leaf.spec.dtype)

    def write(value: Any, out: dict[Any, np.ndarray]) -> None:
        try:
            fits = value.shape == shape and (value.dtype is dtype or value.dtype.kind in "biuf")
        except AttributeError:  # a number, a list or a tensor
            fits = False
        if fits:
            out[key][...] = value
        else:
            leaf.write(out[key], value)

    return write


def _check_plain(leaf: Leaf, value: Any, where: str) -> None:
    expected, shape = tuple(leaf.spec.shape), np.shape(value)
    if shape != expected:
        raise SpecError(
            f"{where}: {leaf.key!r} must have shape {expected}, as its space says; the library returned {shape}."
        )
    dtype = np.asarray(value).dtype
    if dtype.kind not in "biuf":
        raise SpecError(f"{where}: {leaf.key!r} must be of dtype {leaf.spec.dtype}; the library returned {dtype}.")


def _described(value: object) -> str:
    if isinstance(value, Mapping):
        return f"a dict with the keys {sorted(map(str, value))}"
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape is not None else repr(value)[:60]


def kind_of(space: Any) -> str | None:
    """Return the name of the gym or gymnasium class of a space.

    For a subclass, it is the name of the nearest such base class.
    """
    for cls in type(space).__mro__:
        if cls.__module__.partition(".")[0] in ("gym", "gymnasium") and cls.__name__ != "Space":
            return cls.__name__
    return None


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """Return the numpy dtype of a torch dtype."""
    result: np.dtype = torch.empty(0, dtype=dtype, device="cpu").numpy().dtype
    return result
