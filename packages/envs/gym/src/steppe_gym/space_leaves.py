"""SpaceLeaves: the arrays that values of a space consist of, without a change of dtype or encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError
from steppe.specs import Binary, Spec, Unbounded

from .values import kind_of

__all__ = ["Leaf", "SpaceLeaves"]

#: Kinds of spaces whose values are one array or one number.
_ARRAYS = ("Box", "Discrete", "MultiDiscrete", "MultiBinary")

#: The dtypes of numpy that torch has. Others are kept as bytes.
_TORCH = {
    name: getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}


class Leaf:
    """One array of the values of a space.

    Args:
        key: its key in rows.
        path: names and positions that lead to it in a value.
        space: the space of this part.

    Attributes:
        shape, dtype: of the array in one value.
        as_bytes: whether rows hold the bytes of the array, because torch lacks its dtype.
    """

    def __init__(self, key: str, path: tuple[Any, ...], space: Any) -> None:
        self.key, self.path, self.space = key, path, space
        self.shape, self.dtype = tuple(space.shape or ()), np.dtype(space.dtype)
        self.is_number = kind_of(space) == "Discrete"
        self.as_bytes = self.dtype.name not in _TORCH

    def spec(self) -> Spec:
        """Return the spec of the array in rows."""
        if self.as_bytes:
            return Unbounded(shape=(*self.shape, self.dtype.itemsize), dtype=torch.uint8)
        dtype = _TORCH[self.dtype.name]
        return (Binary if dtype is torch.bool else Unbounded)(shape=self.shape, dtype=dtype)

    def array(self, rows: np.ndarray) -> np.ndarray:
        """Return the array of this leaf in an array of rows, or in one row, as a view."""
        return rows.view(self.dtype)[..., 0] if self.as_bytes else rows

    def find(self, value: Any) -> Any:
        """Follow ``path`` into a value."""
        for part in self.path:
            value = value[part]
        return value

    def write(self, view: np.ndarray, value: Any) -> None:
        """Copy a value into the view of its row.

        Raises:
            SpecError: the value has another shape, or a dtype that does not fit.
        """
        array = np.asarray(value)
        if array.shape != self.shape:
            raise SpecError(
                f"{self.key!r} must have shape {self.shape}, as its space {self.space} says; the environment returned "
                f"{array.shape}."
            )
        try:
            np.copyto(view, array, casting="same_kind")
        except TypeError:
            raise SpecError(
                f"{self.key!r} must have dtype {self.dtype}, as its space {self.space} says; the environment returned "
                f"{array.dtype}."
            ) from None


class SpaceLeaves:
    """Divide values of a space into arrays, and put arrays of many rows together as the library batches values.

    Parts without a fixed layout (text, sequences, graphs, spaces of other packages) are *loose*: they have no array,
    and the library batches them as a tuple of the values.

    Args:
        space: the space of one value.
        name: the key of the value in rows, which keys of its parts begin with.

    Attributes:
        leaves: the arrays, in order.
        loose: the paths of the loose parts, in order.
    """

    def __init__(self, space: Any, name: str) -> None:
        self.space, self.name = space, name
        self.leaves: list[Leaf] = []
        self.loose: list[tuple[Any, ...]] = []
        for path, part in _parts(space, ()):
            if kind_of(part) in _ARRAYS:
                self.leaves.append(Leaf(f"{name}{len(self.leaves)}" if path else name, path, part))
            else:
                self.loose.append(path)
        self._build = _builder(space, (), {leaf.path: leaf for leaf in self.leaves})
        self._part = {path: i for i, path in enumerate(self.loose)}
        #: The only leaf, if it is the whole value.
        self.only = self.leaves[0] if len(self.leaves) == 1 and not self.leaves[0].path else None

    def specs(self) -> dict[str, Spec]:
        """Return the spec of each leaf by key."""
        return {leaf.key: leaf.spec() for leaf in self.leaves}

    # -- where the environment is -----------------------------------------------------------------------------------

    def writer(self, out: Mapping[Any, np.ndarray]) -> Callable[[Any], None]:
        """Return a function that writes the arrays of one value into the views of a row."""
        targets = [(leaf, leaf.array(out[leaf.key])) for leaf in self.leaves]
        if self.only is None:

            def write_parts(value: Any) -> None:
                for leaf, view in targets:
                    leaf.write(view, leaf.find(value))

            return write_parts
        leaf, view = targets[0]
        shape, dtype = leaf.shape, leaf.dtype

        def write_array(value: Any) -> None:
            # The general rule takes five times as long as an assignment.
            if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
                view[...] = value
            else:
                leaf.write(view, value)

        return write_array

    def loose_values(self, value: Any) -> list[Any]:
        """Return the loose parts of one value."""
        return [_find(value, path) for path in self.loose]

    def value_of(self, loose: Callable[[], Sequence[Any]]) -> Callable[[Any], Any] | None:
        """Return a function that makes a value of a decoded action: an array, or a dict of arrays by key.

        Args:
            loose: returns the loose parts of the action.

        Returns:
            None if they are equal.
        """
        if self.only is not None:
            leaf = self.only
            return (lambda array: leaf.array(array)[()]) if leaf.as_bytes else None
        only = self.leaves[0].key if len(self.leaves) == 1 else None

        def value(decoded: Any) -> Any:
            arrays, parts = decoded if only is None else {only: decoded}, loose()
            return self._build(lambda leaf: leaf.array(arrays[leaf.key])[()], lambda path: parts[self._part[path]])

        return value

    # -- where the caller is ----------------------------------------------------------------------------------------

    def batched(
        self, arrays: Mapping[str, np.ndarray], loose: Sequence[Sequence[Any]] = (), *, copy: bool = True
    ) -> Any:
        """Put arrays ``[n, *shape]`` together as the library batches ``n`` values.

        Args:
            arrays: the array of each leaf.
            loose: for each loose part its value in each row.
            copy: copy the arrays.
        """
        if self.only is not None:
            array = self.only.array(arrays[self.only.key])
            return array.copy() if copy else array
        return self._build(
            lambda leaf: leaf.array(arrays[leaf.key]).copy() if copy else leaf.array(arrays[leaf.key]),
            lambda path: tuple(loose[self._part[path]]),
        )

    def one(self, arrays: Mapping[str, np.ndarray], row: int, loose: Sequence[Sequence[Any]] = ()) -> Any:
        """Return the value of one row, in new memory."""

        def part(leaf: Leaf) -> Any:
            array = leaf.array(arrays[leaf.key])[row]
            return int(array) if leaf.is_number else array.copy()

        return self._build(part, lambda path: loose[self._part[path]][row])

    def split(self, value: Any, n: int) -> dict[str, np.ndarray]:
        """Divide a batched value into arrays ``[n, *shape]`` in the dtypes of the space.

        Raises:
            TypeError: an array is a single number.
            ValueError: an array has another shape.
        """
        arrays = {}
        for leaf in self.leaves:
            array = np.asarray(leaf.find(value))
            if not array.ndim:
                raise TypeError(f"{self.name!r} must have a value for each of the {n} environments, found {array}.")
            if array.shape != (n, *leaf.shape):
                raise ValueError(
                    f"{self.name!r} must have shape {(n, *leaf.shape)}"
                    f"{f' at {leaf.path}' if leaf.path else ''}, found {array.shape}."
                )
            if leaf.as_bytes:
                array = np.ascontiguousarray(array, leaf.dtype)[..., None].view(np.uint8)
            arrays[leaf.key] = array
        return arrays

    def split_loose(self, value: Any, n: int) -> list[list[Any]]:
        """Return the loose parts of each row of a batched value."""
        columns = [_find(value, path) for path in self.loose]
        if any(len(column) != n for column in columns):
            raise ValueError(f"{self.name!r} must have {n} values, found {[len(column) for column in columns]}.")
        return [[column[row] for column in columns] for row in range(n)]


def _parts(space: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield path and space of each part that is neither a Dict nor a Tuple."""
    kind = kind_of(space)
    if kind == "Dict":
        for name, part in space.spaces.items():
            yield from _parts(part, (*path, name))
    elif kind == "Tuple":
        for i, part in enumerate(space.spaces):
            yield from _parts(part, (*path, i))
    else:
        yield path, space


def _builder(space: Any, path: tuple[Any, ...], leaves: Mapping[tuple[Any, ...], Leaf]) -> Callable[[Any, Any], Any]:
    """Return a function that puts a value together, of functions for its leaves and for the paths of loose parts."""
    if path in leaves:
        leaf = leaves[path]
        return lambda array, loose: array(leaf)
    kind = kind_of(space)
    if kind == "Dict":
        named = [(name, _builder(part, (*path, name), leaves)) for name, part in space.spaces.items()]
        return lambda array, loose: {name: build(array, loose) for name, build in named}
    if kind == "Tuple":
        parts = [_builder(part, (*path, i), leaves) for i, part in enumerate(space.spaces)]
        return lambda array, loose: tuple(build(array, loose) for build in parts)
    return lambda array, loose: loose(path)


def _find(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value
