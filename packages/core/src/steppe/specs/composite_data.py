"""CompositeData: how a Composite creates, checks and converts data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import torch
from tensordict import (
    LazyStackedTensorDict,
    NestedKey,
    TensorDict,
    TensorDictBase,
    is_tensor_collection,
    is_tensorclass,
)

from steppe.errors import SpecError

from . import shapes
from .base import Key, Rows, Spec, named
from .composite_entries import CompositeEntries
from .dtypes import CPU
from .keys import is_key
from .shapes import ShapeLike

__all__ = ["CompositeData", "entry_key"]


def entry_key(key: Key, name: str) -> Key:
    """Return the key of an entry under ``key``."""
    return name if key is None else (*((key,) if isinstance(key, str) else key), name)


class CompositeData(CompositeEntries):
    """The part of a Composite that handles TensorDicts."""

    _data_cls: type | None = None
    _names: list[str | None]

    @property
    def data_cls(self) -> type | None:
        """The tensorclass of the data; None for a TensorDict."""
        return self._data_cls

    @data_cls.setter
    def data_cls(self, value: type | None) -> None:
        if value is not None and not (isinstance(value, type) and is_tensor_collection(value)):
            raise SpecError(f"Composite: expected data_cls to be a tensorclass or TensorDict, found {value!r}.")
        self._data_cls = value if value is not None and is_tensorclass(value) else None

    def _data(self, source: dict[str, object], lead: torch.Size) -> Any:
        """Build the data ``[*lead, *shape]`` from its entries."""
        size = torch.Size((*lead, *shapes.static(self.shape)))
        names: Any = [*[None] * len(lead), *self._names] if any(self._names) else None
        if self._data_cls is not None:
            data = self._data_cls.from_dict(source, batch_size=size, device=self.device)  # type: ignore[attr-defined]
            if names is not None:
                data.names = names
            return data
        return TensorDict(source, batch_size=size, device=self.device, names=names)

    # Making data -------------------------------------------------------------------------------------------------

    def rand(self, shape: ShapeLike = (), *, generator: torch.Generator | None = None) -> Any:
        """Draw a TensorDict of batch size ``[*shape, *spec.shape]``, entry by entry in insertion order."""
        lead = shapes.size(shape)
        return self._data({name: spec.rand(lead, generator=generator) for name, spec in self._entries.items()}, lead)

    def _filled(self, lead: torch.Size, value: int) -> object:
        return self._data({name: spec._filled(lead, value) for name, spec in self._entries.items()}, lead)

    def rand_update(self, val: TensorDictBase, *, generator: torch.Generator | None = None) -> TensorDictBase:
        """Write random data of every entry into ``val``, whose batch size ends with the shape; return it."""
        return val.update(self.rand(self._lead(val), generator=generator))

    def zeros_update(self, val: TensorDictBase) -> TensorDictBase:
        """Write zeros for every entry into ``val``, whose batch size ends with the shape; return it."""
        return val.update(self.zero(self._lead(val)))

    def ones_update(self, val: TensorDictBase) -> TensorDictBase:
        """Write ones for every entry into ``val``, whose batch size ends with the shape; return it."""
        return val.update(self.one(self._lead(val)))

    def _lead(self, val: TensorDictBase) -> torch.Size:
        size, cut = val.batch_size, val.ndim - self.ndim
        if cut < 0 or not shapes.fits(size[cut:], self.shape):
            raise SpecError(
                f"{type(self).__name__}: expected a batch size that ends with {tuple(self.shape)}, found {tuple(size)}."
            )
        return torch.Size(size[:cut])

    # Checking and converting data --------------------------------------------------------------------------------

    def _faults(self, val: object, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        name = named(key, self)
        if not _is_data(val):
            yield f"{name}: expected a TensorDict, found {type(val).__name__}."
            return
        if not is_tensor_collection(val):
            lead = rows or ()
        elif not shapes.fits_rows(val.batch_size, self.shape, rows):
            yield f"{name}: expected batch size {(*(rows or ()), *self.shape)}, found {tuple(val.batch_size)}."
            return
        else:
            lead = tuple(val.batch_size[: val.ndim - self.ndim])
        if isinstance(val, LazyStackedTensorDict) and (self._has_dynamic_sizes() or not _reads_as_one(val)):
            yield from self._row_faults(val, key, lead, exact)
            return
        keys = set(val.keys())
        for child_name, child in self._entries.items():
            child_key = entry_key(key, child_name)
            if child_name in keys:
                yield from child._faults(_entry(val, child_name), child_key, lead, exact)
            elif exact or not isinstance(child, CompositeData) or child._children:
                what = f"{type(child).__name__} of shape {tuple(child.shape)}"
                yield f"{child_key!r}: expected a {what}, found no such entry among {sorted(map(str, keys))}."
        if exact:
            for extra in sorted(map(str, keys - set(self._children))):
                extra_key = entry_key(key, extra)
                yield f"{extra_key!r}: expected no such entry. Remove it from the data, or add it to the spec."

    def _row_faults(self, val: LazyStackedTensorDict, key: Key, lead: tuple[int, ...], exact: bool) -> Iterator[str]:
        """Yield the faults of a lazy stack whose rows have different shapes."""
        inner = lead[: val.stack_dim] + lead[val.stack_dim + 1 :]
        for i, (spec, row) in enumerate(self._rows(val)):
            yield from spec._faults(row, entry_key(key, f"[{i}]"), inner, exact)

    def _has_dynamic_sizes(self) -> bool:
        return any(-1 in spec.shape for spec in self.values(include_nested=True) if spec is not None)

    def rows_of(self, val: object) -> list[tuple[Any, Any]] | None:
        """Return the rows of data that differ in shape, each with its spec; None for data that reads as one."""
        return None if not isinstance(val, LazyStackedTensorDict) or _reads_as_one(val) else self._rows(val)

    def _rows(self, val: LazyStackedTensorDict) -> list[tuple[Spec, Any]]:
        rows, dim = val.unbind(val.stack_dim), val.stack_dim - (val.ndim - self.ndim)
        if dim >= 0 and self.shape[dim] >= 0:
            return list(zip(self.unbind(dim), rows, strict=True))
        spec = self if dim < 0 else self[(*[slice(None)] * dim, 0)]
        return [(spec, row) for row in rows]

    def project(self, val: Any, *, key: Key = None) -> Any:
        """Replace every invalid entry by the nearest valid data, in place.

        Entries that are not in the spec are ignored. For a locked TensorDict with invalid entries, a changed shallow
        copy is returned.

        Args:
            val: a TensorDict or a dict, with any leading dimensions.
            key: how an error calls the data.

        Returns:
            ``val``.

        Raises:
            SpecError: an entry is missing, or has the wrong shape.
        """
        self._check_data(val, key)
        rows = self.rows_of(val)
        if rows is not None:
            return self._project_rows(val, rows, key)
        changed = {}
        for name, child in self._entries.items():
            before = _entry(val, name)
            after = child.project(before, key=entry_key(key, name))
            if after is not before:
                changed[name] = after
        if changed and getattr(val, "is_locked", False):
            val = val.copy()
        for name, after in changed.items():
            if isinstance(val, Mapping):
                val[name] = after  # type: ignore[index]
            else:
                val.set(name, after)
        return val

    def _project_rows(self, val: Any, rows: list[tuple[Any, Any]], key: Key) -> Any:
        projected = [spec.project(row, key=entry_key(key, f"[{i}]")) for i, (spec, row) in enumerate(rows)]
        if all(new is old for new, (_, old) in zip(projected, rows, strict=True)):
            return val
        return LazyStackedTensorDict.lazy_stack(projected, val.stack_dim)

    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> Any:
        """Convert a dict or TensorDict of a library's values to a TensorDict.

        Missing entries are left out. All entries have the leading dimensions of the TensorDict, or ``lead``. A dict has
        none by default.

        Raises:
            SpecError: an entry is not in the spec, or has the wrong shape.
        """
        if not _is_data(val):
            raise SpecError(f"{named(key, self)}: expected a TensorDict or a dict, found {type(val).__name__}.")
        extra = sorted(str(name) for name in val.keys() if name not in self._children)
        if extra:
            raise SpecError(
                f"{named(key, self)}: expected the entries {list(self._children)}, found also {extra}. "
                f"Drop them, or add them to the spec."
            )
        if lead is None:
            has_rows = is_tensor_collection(val) and shapes.fits_rows(val.batch_size, self.shape, None)
            lead = tuple(val.batch_size[: val.ndim - self.ndim]) if has_rows else ()
        encoded = {}
        for name, child in self._children.items():
            if name not in val.keys():
                continue
            value = _entry(val, name)
            if child is not None:
                value = child.encode(value, ignore_device=ignore_device, key=entry_key(key, name), lead=lead)
            if value is not None:
                encoded[name] = value
        return self._data(encoded, torch.Size(lead))

    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Convert each entry; return them as a dict, with a dict for each nested Composite."""
        self._check_if(safe, val, key)
        self._check_data(val, key)
        return {
            name: child.to_numpy(_entry(val, name), False, key=entry_key(key, name))
            for name, child in self._entries.items()
        }

    def type_check(self, value: Any, selected_keys: NestedKey | Sequence[NestedKey] | None = None) -> None:
        """Raise a SpecError if an entry is missing or has the wrong dtype.

        Args:
            value: a TensorDict; with one selected key, it may be the value of this entry.
            selected_keys: key or keys of the entries to check; all by default.

        Raises:
            KeyError: a selected key is not in the spec.
        """
        if selected_keys is None:
            self._type_check(value, None)
            return
        for key in [selected_keys] if is_key(selected_keys) else selected_keys:
            child = self.get(key)
            if child is not None:
                child._type_check(value if isinstance(value, torch.Tensor) else value.get(key), key)

    def _type_check(self, value: object, key: Key) -> None:
        self._check_data(value, key)
        for name, child in self._entries.items():
            child._type_check(_entry(value, name), entry_key(key, name))

    def _check_data(self, val: Any, key: Key) -> None:
        if not _is_data(val):
            raise SpecError(f"{named(key, self)}: expected a TensorDict or a dict, found {type(val).__name__}.")
        keys = set(val.keys())
        missing = [name for name in self._entries if name not in keys]
        if missing:
            raise SpecError(
                f"{named(key, self)}: expected the entries {list(self._children)}, found no {missing}. "
                f"It has {sorted(map(str, keys))}."
            )

    def index(self, index: object, tensor_to_index: object) -> Any:
        """Select entry by entry; see :meth:`Spec.index`. Returns a dict, nested like the spec.

        Raises:
            SpecError: an argument is neither a TensorDict nor a dict, or lacks an entry.
        """
        self._check_data(index, "index")
        self._check_data(tensor_to_index, "tensor_to_index")
        return {
            name: child.index(_entry(index, name), _entry(tensor_to_index, name))
            for name, child in self._entries.items()
        }

    def cardinality(self) -> int | float:
        """Return the product of the cardinalities of all entries."""
        return shapes.product(child.cardinality() for child in self._entries.values())

    def enumerate(self, use_mask: bool = False) -> Any:
        """Return all combinations of the values of the entries, a TensorDict ``[n, *shape]``.

        Raises:
            NotSupported: an entry cannot be enumerated, or there are more than 2**24 combinations.
        """
        columns = {name: child.enumerate(use_mask) for name, child in self._entries.items()}
        self._check_countable(shapes.product(map(len, columns.values())))
        chosen = shapes.combinations([torch.arange(len(column), device=CPU) for column in columns.values()])
        pairs = zip(columns.items(), chosen.unbind(-1), strict=True)
        rows = {name: column[at.to(column.device)] for (name, column), at in pairs}
        return self._data(rows, torch.Size((len(chosen),)))


def _is_data(val: object) -> TypeGuard[Any]:
    return isinstance(val, (TensorDictBase, Mapping)) or is_tensor_collection(val)


def _reads_as_one(val: LazyStackedTensorDict) -> bool:
    """Whether each entry of a lazy stack can be read as one tensor."""
    rows = val.tensordicts
    for name in val.keys():
        values = [row.get(name) for row in rows]
        first = values[0]
        if isinstance(first, torch.Tensor):
            if any(not isinstance(value, torch.Tensor) or value.shape != first.shape for value in values[1:]):
                return False
        elif isinstance(first, LazyStackedTensorDict) and not _reads_as_one(first):
            return False
    return True


def _entry(val: Any, name: str) -> Any:
    if not is_tensor_collection(val):
        return val[name]
    value = val.get(name)
    if isinstance(value, torch.Tensor) or is_tensor_collection(value) or not is_tensorclass(val):
        return value
    # A tensorclass unwraps non-tensor data; only its items have the batch size.
    return dict(val.items())[name]
