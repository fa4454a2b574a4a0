"""StackedComposite: a stack of unequal Composites, for example of different agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, NestedKey, is_tensor_collection

from steppe.errors import NotSupported, SpecError

from . import shapes
from .base import DeviceLike, Key, Rows, Spec, named
from .composite import Composite, listing
from .composite_data import entry_key
from .composite_entries import NOTHING
from .lazy_stack import LazyStack, stacked_shape
from .shapes import Change, ShapeLike
from .shaping import as_device
from .stacked import check_parts, stack

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["StackedComposite"]


class _Common(Mapping[str, Any]):
    """The entries that all parts have, stacked on access."""

    def __init__(self, parts: Sequence[Composite], dim: int, dim_name: str | None) -> None:
        self._parts, self._dim, self._dim_name = parts, dim, dim_name

    def __iter__(self) -> Iterator[str]:
        first, *others = self._parts
        return (name for name in first._children if all(name in other._children for other in others))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return all(name in part._children for part in self._parts)

    def __getitem__(self, name: str) -> Any:
        children = [part._children[name] for part in self._parts]
        if all(child is None for child in children):
            return None
        try:
            if all(isinstance(child, Composite) for child in children):
                # Equal parts are stacked lazily too, so that edits reach all of them.
                nested = StackedComposite(*[child for child in children if isinstance(child, Composite)], dim=self._dim)
                nested._dim_name = self._dim_name
                return nested
            return stack(children, self._dim, mixed=True)
        except SpecError as error:
            raise SpecError(f"The entry {name!r} differs too much among the stacked specs: {error}") from None


class StackedComposite(LazyStack[Composite], Composite):
    """Unequal Composites along a new batch dimension. Data is a lazily stacked TensorDict.

    The entries are those that all parts have: Composites as a StackedComposite, equal leaves as one spec, unequal
    leaves as a Stacked. Entries of single parts are accessed through the parts: ``spec[i]``, ``spec.specs``. Entries
    are set and removed in all parts; if one part raises an error, no part changes.

    Args:
        *specs: Composites with equal numbers of batch dimensions.
        dim: position of the new dimension among the batch dimensions.

    Raises:
        SpecError: they cannot be stacked.
    """

    def __init__(self, *specs: Composite, dim: int = 0) -> None:
        check_parts(specs, "StackedComposite")
        if not isinstance(specs[0], Composite):
            raise SpecError("StackedComposite: expected Composites, found leaf specs. Use Stacked or torch.stack.")
        self._holders = {}
        self._dim = shapes.normal_dim(dim, specs[0].ndim + 1, what="a stack")
        self._parts = _without_shared(specs)
        self._dim_name: str | None = None

    def _stack(self, parts: Sequence[Composite], dim: int) -> Composite:
        out: Composite = stack(parts, dim)
        return out

    def _restack(self, parts: Sequence[Any], dim: int) -> Self:
        out = type(self)(*parts, dim=dim)
        out._dim_name = self._dim_name
        return out

    def _apply(self, change: Change, doing: str) -> Any:
        return self._renamed(LazyStack._apply(self, change, doing), change)

    def _index(self, index: object) -> Any:
        ready = shapes.expand_index(index, self.ndim)
        return self._renamed(LazyStack._index(self, index), lambda data: shapes.indexed(data, ready))

    @property
    def _children(self) -> Mapping[str, Any]:
        return _Common(self._parts, self._dim, self._dim_name)

    def _nested_specs(self) -> Iterable[Composite]:
        return self._parts

    # Attributes --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """Batch size of the data; -1 for different sizes. The size of the stacked dimension cannot change."""
        return stacked_shape(self._parts, self._dim)

    @shape.setter
    def shape(self, value: ShapeLike) -> None:
        self._check_unlocked("change its shape")
        target = shapes.size(value)
        if len(target) <= self._dim or target[self._dim] != len(self._parts):
            raise NotSupported(f"The stacked dimension {self._dim} has {len(self._parts)} specs: cannot be {target}.")
        for part in self._parts:
            part.shape = torch.Size((*target[: self._dim], *target[self._dim + 1 :]))

    @property
    def _names(self) -> list[str | None]:  # type: ignore[override]
        names: list[str | None] = self._parts[0].names
        names.insert(self._dim, self._dim_name)
        return names

    def _name(self, names: list[str | None]) -> None:
        self._dim_name = names[self._dim]
        for part in self._parts:
            part._name([*names[: self._dim], *names[self._dim + 1 :]])

    @property
    def device(self) -> torch.device | None:
        """Device of the data, or None. Assigning it moves the parts."""
        return super().device

    @device.setter
    def device(self, value: DeviceLike) -> None:
        self._check_unlocked("change its device")
        for part in self._parts:
            part.device = as_device(value)

    # Making, checking and converting data ------------------------------------------------------------------------

    def _joined(self, rows: list[Any], lead: int = 0) -> Any:
        data = LazyStackedTensorDict.lazy_stack(rows, lead + self._dim)
        if self._dim_name is not None:
            data.names = [*[None] * lead, *self._names]
        return data

    def _separate(self, val: Any, key: Key, lead: int | None = None) -> list[Any]:
        n = len(self._parts)
        if isinstance(val, (list, tuple)) and len(val) == n:
            return list(val)
        if is_tensor_collection(val):
            at = val.ndim - self.ndim + self._dim
            if at >= 0 and val.batch_size[at] == n:
                return list(val.unbind(at))
        raise SpecError(
            f"{named(key, self)}: expected a TensorDict of batch size {tuple(self.shape)}, or a list of {n}, found "
            f"{tuple(val.batch_size) if is_tensor_collection(val) else type(val).__name__}."
        )

    def rows_of(self, val: object) -> list[tuple[Any, Any]]:
        """Return the data of each part, with the part."""
        return list(zip(self._parts, self._separate(val, None), strict=True))

    def _faults(self, val: Any, key: Key, rows: Rows, exact: bool) -> Iterator[str]:
        if not is_tensor_collection(val) or not shapes.fits_rows(val.batch_size, self.shape, rows):
            actual = tuple(val.batch_size) if is_tensor_collection(val) else type(val).__name__
            size = (*(rows or ()), *self.shape)
            yield f"{named(key, self)}: expected a TensorDict of batch size {size}, found {actual}."
            return
        lead = tuple(val.batch_size[: val.ndim - self.ndim])
        for i, (part, row) in enumerate(zip(self._parts, self._separate(val, key), strict=True)):
            yield from part._faults(row, entry_key(key, f"[{i}]"), lead, exact)

    def to_numpy(self, val: Any, safe: bool | None = None, *, key: Key = None) -> Any:
        """Convert the data of each part; return a list with the dict of each, which ``encode`` accepts."""
        return self._each(self._separate(val, key), key, "to_numpy", safe=safe)

    def type_check(self, value: Any, selected_keys: NestedKey | Sequence[NestedKey] | None = None) -> None:
        """Check each part; see :meth:`Composite.type_check`. All parts must have the selected keys."""
        if isinstance(value, torch.Tensor):
            super().type_check(value, selected_keys)
            return
        for part, row in self.rows_of(value):
            part.type_check(row, selected_keys)

    def _type_check(self, value: object, key: Key) -> None:
        for i, (part, row) in enumerate(zip(self._parts, self._separate(value, key), strict=True)):
            part._type_check(row, entry_key(key, f"[{i}]"))

    def index(self, index: object, tensor_to_index: object) -> Any:
        """Select part by part; see :meth:`Spec.index`. Returns a list of dicts."""
        rows = zip(self._parts, self._separate(index, None), self._separate(tensor_to_index, None), strict=True)
        return [part.index(*row) for part, *row in rows]

    # Reading and editing entries ---------------------------------------------------------------------------------

    def _edit(self, method: str, *arguments: object, rows: Sequence[Any]) -> None:
        """Call a method of every part with its row. If it raises for one part, no part changes."""
        for trial in (True, False):
            for part, row in zip(self._parts, rows, strict=True):
                part._check_unlocked(f"{method} {arguments}" if arguments else method)
                getattr(part.clone(recurse=False) if trial else part, method)(*arguments, row)

    def set(self, name: NestedKey, spec: object) -> Self:
        """Set the entry at a key in every part, in place. ``spec`` includes the stacked dimension."""
        self._check_unlocked(f"set {name!r}")
        fitted = self._fitted(name, spec)
        self._edit("set", name, rows=[None] * len(self._parts) if fitted is None else fitted.unbind(self._dim))
        return self

    def _check_prefix(self, key: NestedKey, spec: Spec, shape: torch.Size) -> None:
        if not shapes.fits(spec.shape[: len(shape)], shape):
            super()._check_prefix(key, spec, shape)

    def pop(self, key: NestedKey, default: object = NOTHING) -> Any:
        """Remove the entry at a key from every part, in place, and return it stacked."""
        self._check_unlocked(f"remove {key!r}")
        if key not in self:
            if default is not NOTHING:
                return default
            raise KeyError(self._not_found(key))
        value = self.get(key)
        for part in self._parts:
            part.pop(key)
        return value

    def __delitem__(self, key: NestedKey) -> None:
        """Remove the entry at a key from every part that has it, in place.

        Raises:
            KeyError: no part has it.
            StateError: the spec is locked.
        """
        self._check_unlocked(f"remove {key!r}")
        holders = [part for part in self._parts if key in part]
        if not holders:
            raise KeyError(self._not_found(key))
        for part in holders:
            part.pop(key)

    def update(self, other: Mapping[Any, object] | Composite) -> Self:
        """Add and replace entries of every part, in place; see :meth:`Composite.update`.

        Args:
            other: entries with the stacked dimension. Entries of single parts of a stack are set in these parts.
        """
        self._check_unlocked("update it")
        fitted = self._fitted("update", other)
        assert fitted is not None
        self._edit("update", rows=fitted.unbind(self._dim))
        return self

    def exclude(self, *keys: NestedKey) -> Composite:
        """Return the stack without some entries; see :meth:`Composite.exclude`."""
        return self._stack([part.exclude(*keys) for part in self._parts], self._dim)

    def separates(self, *keys: NestedKey, default: object = None) -> Composite | None:
        """Move entries out of every part, in place, into a new stack; see :meth:`Composite.separates`."""
        self._check_unlocked("take entries out of it")
        taken = [part.separates(*keys, default=default) for part in self._parts]
        if all(part is None for part in taken):
            return None
        pairs = zip(self._parts, taken, strict=True)
        return self._stack([part.empty() if part_spec is None else part_spec for part, part_spec in pairs], self._dim)

    def empty(self) -> Composite:
        """Return a spec of the same shape and device without entries."""
        return self._stack([part.empty() for part in self._parts], self._dim)

    def is_empty(self, recurse: bool = False) -> bool:
        """Whether no part has entries."""
        return all(part.is_empty(recurse) for part in self._parts)

    def clone(self, recurse: bool = True) -> Self:
        """Return an unlocked copy; see :meth:`Composite.clone`."""
        return self._restack([part.clone(recurse=recurse) for part in self._parts], self._dim)

    def clear_device_(self) -> Self:
        """Make the device of every part None, in place; return the stack."""
        self._check_unlocked("clear its device")
        return super().clear_device_()

    def __repr__(self) -> str:
        head = f"StackedComposite(shape={tuple(self.shape)}, dim={self._dim})"
        return head + listing({f"[{i}]": part for i, part in enumerate(self._parts)})


def _without_shared(specs: Sequence[Composite]) -> list[Composite]:
    """Copy specs that share a Composite with an earlier one, because an edit would reach it twice."""
    seen: set[int] = set()
    out = []
    for spec in specs:
        if not seen.isdisjoint(map(id, (spec, *spec._all_nested()))):
            spec = spec.clone(recurse=False)
        seen.update(map(id, (spec, *spec._all_nested())))
        out.append(spec)
    return out
