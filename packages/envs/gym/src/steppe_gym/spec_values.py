"""SpecValues: values of the spaces of any steppe environment, from arrays of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from steppe.errors import NotSupported
from steppe.specs import Categorical, Composite, MultiOneHot, NonTensor, OneHot, Spec

from .to_space import spec_to_space

__all__ = ["SpecValues"]


class SpecValues:
    """Convert between values of the space of a spec and arrays of rows: one-hot rows to numbers, and back.

    Args:
        spec: the spec of one row.
        name: the usual key: if it is the only entry, its space is the whole space.
        library: ``"gymnasium"`` or ``"gym"``.
        whole: always make a Dict.

    Attributes:
        space: the space of one row.
    """

    def __init__(self, spec: Composite, name: str, library: str, *, whole: bool = False) -> None:
        self.name = name
        self.only = list(spec.keys()) == [name] and not whole
        entry: Spec = spec[name] if self.only else spec
        self.space = spec_to_space(entry, backend=library)
        self._tree = _tree(entry, (name,) if self.only else ())

    def batched(self, arrays: Mapping[Any, np.ndarray], *, copy: bool = True) -> Any:
        """Return the values of all rows, as the library batches them."""
        return _map(self._tree, lambda key, spec: _numbers(arrays[key], spec, copy=copy))

    def one(self, arrays: Mapping[Any, np.ndarray], row: int) -> Any:
        """Return the value of one row, in new memory."""

        def value(key: Any, spec: Spec) -> Any:
            result = _numbers(arrays[key][row : row + 1], spec, copy=True)[0]
            return int(result) if isinstance(spec, OneHot | Categorical) and result.ndim == 0 else result

        return _map(self._tree, value)

    def split(self, value: Any, n: int) -> dict[Any, np.ndarray]:
        """Divide a batched value into arrays ``[n, *shape]`` of the entries of the spec.

        Raises:
            ValueError: an array has another shape.
        """
        arrays: dict[Any, np.ndarray] = {}
        _divide(self._tree, value, n, arrays)
        return arrays


def _tree(spec: Spec, path: tuple[str, ...]) -> Any:
    """Return nested dicts of ``(key, spec)`` for the leaves of a spec."""
    if isinstance(spec, Composite):
        return {str(name): _tree(part, (*path, str(name))) for name, part in spec.items()}
    if isinstance(spec, NonTensor) or -1 in spec.shape:
        raise NotSupported(f"{path} has no fixed layout.")
    return (path[0] if len(path) == 1 else path), spec


def _map(tree: Any, convert: Callable[[Any, Spec], Any]) -> Any:
    if isinstance(tree, dict):
        return {name: _map(part, convert) for name, part in tree.items()}
    return convert(*tree)


def _divide(tree: Any, value: Any, n: int, arrays: dict[Any, np.ndarray]) -> None:
    if isinstance(tree, dict):
        for name, part in tree.items():
            _divide(part, value[name], n, arrays)
        return
    key, spec = tree
    arrays[key] = _encoded(np.asarray(value), spec, key, n)


def _numbers(array: np.ndarray, spec: Spec, *, copy: bool) -> np.ndarray:
    """Return the numbers that stand for one-hot rows; other arrays as they are."""
    if isinstance(spec, MultiOneHot):
        ends = np.cumsum([box.n for box in spec.space])[:-1]
        return np.stack([part.argmax(-1) for part in np.split(array, ends, -1)], -1)
    if isinstance(spec, OneHot):
        result: np.ndarray = array.argmax(-1)
        return result
    return array.copy() if copy else array


def _encoded(value: np.ndarray, spec: Spec, key: Any, n: int) -> np.ndarray:
    shape: Sequence[int] = tuple(spec.shape)
    if isinstance(spec, MultiOneHot):
        sizes = [box.n for box in spec.space]
        _check(value, (n, *shape[:-1], len(sizes)), key)
        return np.concatenate([np.eye(size, dtype=np.int64)[value[..., i]] for i, size in enumerate(sizes)], -1)
    if isinstance(spec, OneHot):
        _check(value, (n, *shape[:-1]), key)
        rows: np.ndarray = np.eye(spec.space.n, dtype=np.int64)[value]
        return rows
    _check(value, (n, *shape), key)
    return value


def _check(value: np.ndarray, shape: tuple[int, ...], key: Any) -> None:
    if value.shape != shape:
        raise ValueError(f"{key!r} must have shape {shape}, found {value.shape}.")
