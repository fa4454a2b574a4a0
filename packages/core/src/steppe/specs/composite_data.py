"""What a Composite does with data: make it, check it, convert it."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_tensor_collection

from steppe.errors import SpecError

from . import shapes
from .base import Key, Spec, named
from .dtypes import CPU
from .locking import Lockable
from .shapes import ShapeLike

__all__ = ["CompositeData", "entry_key"]


def entry_key(key: Key, name: str) -> Key:
    """The key of an entry, nested under ``key``."""
    return name if key is None else (*((key,) if isinstance(key, str) else key), name)


class CompositeData(Lockable, Spec):
    """The part of a Composite that is about tensordicts."""

    @property
    @abstractmethod
    def _children(self) -> Mapping[str, Spec | None]:
        """The entries."""

    @abstractmethod
    def _data(self, source: dict[str, Any], lead: torch.Size) -> Any:
        """A TensorDict of entries, ``[*lead, *shape]``."""

    # Making data -------------------------------------------------------------------------------------------------

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw a TensorDict of batch size ``[*shape, *spec.shape]``, entry by entry in the order they were set."""
        lead = shapes.size(shape)
        drawn = {
            key: child.rand(lead, generator=generator) for key, child in self._children.items() if child is not None
        }
        return self._data(drawn, lead)

    def zero(self, shape: ShapeLike = ()) -> Any:
        """Return a TensorDict of zeros, of batch size ``[*shape, *spec.shape]``: storage, maybe out of the domain."""
        lead = shapes.size(shape)
        return self._data({key: child.zero(lead) for key, child in self._children.items() if child is not None}, lead)

    def one(self, shape: ShapeLike = ()) -> Any:
        """Return a TensorDict of ones, of batch size ``[*shape, *spec.shape]``: storage, maybe out of the domain."""
        lead = shapes.size(shape)
        return self._data({key: child.one(lead) for key, child in self._children.items() if child is not None}, lead)

    def rand_update(self, tensordict: Any, *, generator: torch.Generator | None = None) -> Any:
        """Write random data of every entry into ``tensordict``, whose batch size ends with the shape; return it."""
        return tensordict.update(self.rand(self._lead(tensordict), generator=generator))

    def zeros_update(self, tensordict: Any) -> Any:
        """Write zeros for every entry into ``tensordict``, whose batch size ends with the shape; return it."""
        return tensordict.update(self.zero(self._lead(tensordict)))

    def ones_update(self, tensordict: Any) -> Any:
        """Write ones for every entry into ``tensordict``, whose batch size ends with the shape; return it."""
        return tensordict.update(self.one(self._lead(tensordict)))

    def _lead(self, tensordict: Any) -> torch.Size:
        size, cut = tensordict.batch_size, tensordict.ndim - self.ndim
        if cut < 0 or not shapes.fits(size[cut:], self.shape):
            raise SpecError(
                f"{type(self).__name__}: expected a batch size that ends with {tuple(self.shape)}, found {tuple(size)}."
            )
        return torch.Size(size[:cut])

    # Checking and converting data --------------------------------------------------------------------------------

    def faults(self, val: Any, key: Key = None) -> Iterator[str]:
        """Yield a sentence for every wrong, missing or extra entry, and for a wrong batch size."""
        name = named(key, self)
        if not _is_data(val):
            yield f"{name}: expected a TensorDict, found {type(val).__name__}."
            return
        if is_tensor_collection(val) and not shapes.fits(val.batch_size, self.shape):
            yield f"{name}: expected batch size {tuple(self.shape)}, found {tuple(val.batch_size)}."
            return
        if isinstance(val, LazyStackedTensorDict) and self._has_dynamic_sizes():
            # Rows of different sizes cannot be read as one tensor.
            rows = val.unbind(val.stack_dim)
            for i, (spec, row) in enumerate(zip(self._rows(val.stack_dim, len(rows)), rows, strict=True)):
                yield from spec.faults(row, entry_key(key, f"[{i}]"))
            return
        keys = set(val.keys())
        for child_name, child in self._children.items():
            child_key = entry_key(key, child_name)
            if child_name in keys:
                if child is not None:
                    yield from child.faults(_entry(val, child_name), child_key)
            elif child is not None:
                what = f"{type(child).__name__} of shape {tuple(child.shape)}"
                yield f"{child_key!r}: expected a {what}, found no such entry among {sorted(map(str, keys))}."
        for extra in sorted(map(str, keys - set(self._children))):
            yield f"{entry_key(key, extra)!r}: expected no such entry. Remove it from the data, or add it to the spec."

    def _has_dynamic_sizes(self) -> bool:
        return any(
            child is not None
            and (-1 in child.shape or (isinstance(child, CompositeData) and child._has_dynamic_sizes()))
            for child in self._children.values()
        )

    def _rows(self, dim: int, n: int) -> tuple[Spec, ...]:
        """The specs of ``n`` rows along a batch dimension."""
        if self.shape[dim] >= 0:
            return self.unbind(dim)
        row: Spec = self[(*[slice(None)] * dim, 0)]
        return (row,) * n

    def project(self, val: Any, *, key: Key = None) -> Any:
        """Return the data with every entry projected: a shallow copy, or ``val`` itself where it is in the spec.

        Entries that the spec does not have are kept.

        Raises:
            SpecError: an entry is missing, or of the wrong shape.
        """
        self._check_data(val, key)
        out = val.copy()
        changed = False
        for name, child in self._children.items():
            if child is None:
                continue
            before = _entry(val, name)
            after = child.project(before, key=entry_key(key, name))
            if after is not before:
                changed = True
                out[name] = after
        return out if changed else val

    def encode(self, val: Any, *, ignore_device: bool = False, key: Key = None) -> Any:
        """Turn a dict (or TensorDict) of a library's values into a TensorDict of the spec.

        Raises:
            SpecError: an entry is missing, is not in the spec, or is of the wrong shape.
        """
        self._check_data(val, key)
        extra = sorted(str(name) for name in val.keys() if name not in self._children)
        if extra:
            raise SpecError(
                f"{named(key, self)}: expected the entries {list(self._children)}, found also {extra}. "
                f"Drop them, or add them to the spec."
            )
        encoded = {}
        for name, child in self._children.items():
            value = _entry(val, name) if name in val.keys() else None
            if child is not None:
                value = child.encode(value, ignore_device=ignore_device, key=entry_key(key, name))
            if value is not None:
                encoded[name] = value
        return self._data(encoded, torch.Size(()))

    def to_numpy(self, val: Any, *, safe: bool = False, key: Key = None) -> Any:
        """Return a dict of what each entry becomes; nested Composites become dicts."""
        if safe:
            self.assert_is_in(val, key=key)
        self._check_data(val, key)
        return {
            name: child.to_numpy(_entry(val, name), key=entry_key(key, name))
            for name, child in self._children.items()
            if child is not None
        }

    def type_check(self, value: Any, key: Key = None) -> None:
        """Raise a SpecError unless every entry is there and of its spec's dtype."""
        self._check_data(value, key)
        for name, child in self._children.items():
            if child is not None:
                child.type_check(_entry(value, name), entry_key(key, name))

    def _check_data(self, val: Any, key: Key) -> None:
        if not _is_data(val):
            raise SpecError(f"{named(key, self)}: expected a TensorDict or a dict, found {type(val).__name__}.")
        keys = set(val.keys())
        missing = [name for name, child in self._children.items() if child is not None and name not in keys]
        if missing:
            raise SpecError(
                f"{named(key, self)}: expected the entries {list(self._children)}, found no {missing}. "
                f"It has {sorted(map(str, keys))}."
            )

    def index(self, index: Any, tensor_to_index: Any) -> Any:
        """Pick entry by entry; see :meth:`Spec.index`. Returns a dict, nested like the spec.

        Raises:
            SpecError: one of the two is neither a TensorDict nor a dict, or lacks an entry.
        """
        for name, data in (("index", index), ("tensor_to_index", tensor_to_index)):
            if not _is_data(data):
                raise SpecError(
                    f"Composite.index: expected {name} to be a TensorDict or a dict, found {type(data).__name__}."
                )
            missing = [key for key, child in self._children.items() if child is not None and key not in data.keys()]
            if missing:
                raise SpecError(f"Composite.index: {name} lacks {missing}, found {sorted(map(str, data.keys()))}.")
        return {
            name: child.index(_entry(index, name), _entry(tensor_to_index, name))
            for name, child in self._children.items()
            if child is not None
        }

    def cardinality(self) -> int | float:
        """Return the product of the cardinalities of all entries."""
        return math.prod(child.cardinality() for child in self._children.values() if child is not None)

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return every combination of what the entries enumerate, a TensorDict ``[n, *shape]``.

        Raises:
            NotSupported: an entry cannot be enumerated.
        """
        columns = {name: child.enumerate(use_mask) for name, child in self._children.items() if child is not None}
        counts = [torch.arange(len(column), device=CPU) for column in columns.values()]
        grid = [axis.flatten() for axis in torch.meshgrid(*counts, indexing="ij")] if counts else []
        n = torch.Size((math.prod(len(count) for count in counts),))
        rows = {name: column[at.to(column.device)] for (name, column), at in zip(columns.items(), grid, strict=True)}
        return self._data(rows, n)


def _is_data(val: Any) -> bool:
    return isinstance(val, (TensorDictBase, Mapping)) or is_tensor_collection(val)


def _entry(val: Any, name: str) -> Any:
    return val.get(name) if is_tensor_collection(val) else val[name]
