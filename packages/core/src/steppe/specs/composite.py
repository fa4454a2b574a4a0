"""Composite: the spec of a TensorDict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import torch
from tensordict import NestedKey, TensorDict

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import shapes
from .base import DeviceLike, Spec
from .composite_data import CompositeData
from .composite_entries import NOTHING
from .keys import as_path, is_key
from .locking import Lockable
from .nontensor import NonTensor
from .shapes import Change, ShapeLike
from .shaping import as_device

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Composite", "conversion_hint", "listing"]


class Composite(CompositeData, Lockable):
    """A spec of a TensorDict: specs under names, which may be Composites themselves.

    The shape is the batch size of the data; the shape of every entry starts with it. An entry may be None: any value is
    valid there, and ``rand`` and ``zero`` leave it out.

    Shape operations apply to the batch dimensions and return an unlocked spec. Names of dimensions follow them as those
    of a TensorDict do.

    Args:
        *args: at most one mapping of keys to specs, mappings or None. Tuple keys nest.
        shape: batch size of the data; ``()`` by default.
        batch_size: same as ``shape``.
        device: device of the data; entries are moved to it. None: each entry keeps its device.
        data_cls: a tensorclass that ``rand``, ``zero``, ``one``, ``encode`` and ``enumerate`` return instead of a
            TensorDict. Both are valid data.
        step_mdp_static: ignored, with a warning; programs for TorchRL pass it.
        names: names of the batch dimensions, for nested Composites too.
        **kwargs: more entries.

    Attributes:
        step_mdp_static: the argument.

    Raises:
        SpecError: an entry is not a spec, or its shape does not start with the batch size.
    """

    step_mdp_static: bool = False

    def __init__(
        self,
        *args: Mapping[Any, object] | Composite,
        shape: ShapeLike | None = None,
        batch_size: ShapeLike | None = None,
        device: DeviceLike = None,
        data_cls: type | None = None,
        step_mdp_static: bool = False,
        names: list[str | None] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if len(args) > 1:
            raise SpecError(f"Composite: expected at most one mapping of keys to specs, found {len(args)} arguments.")
        if shape is not None and batch_size is not None and shapes.size(shape) != shapes.size(batch_size):
            raise SpecError(f"Composite: shape={shape} and batch_size={batch_size} are the same thing: give one.")
        self._shape = shapes.size(batch_size if shape is None else shape)
        self._device = as_device(device)
        self.data_cls = data_cls
        if step_mdp_static:
            ignored_argument("Composite", "step_mdp_static", "entries always go to the next step whole")
        self.step_mdp_static = bool(step_mdp_static)
        self._specs: dict[str, Spec | None] = {}
        self._names: list[str | None] = self._checked_names(names)
        for entries in (*args, kwargs):
            for key, spec in entries.items():
                self.set(key, spec)
        if names is not None:
            self._name(self._names)

    @property
    def _children(self) -> Mapping[str, Spec | None]:
        return self._specs

    # Attributes --------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> torch.Size:
        """Batch size of the data. Assigning it extends the shorter batch sizes of nested Composites."""
        return self._shape

    @shape.setter
    def shape(self, value: ShapeLike) -> None:
        self._check_unlocked("change its shape")
        shape = shapes.size(value)
        for key, child in self._children.items():
            if isinstance(child, (Composite, NonTensor)) and child.shape == shape[: child.ndim] != shape:
                child.shape = shape
            elif child is not None:
                self._check_prefix(key, child, shape)
        self._names = (self._names + [None] * len(shape))[: len(shape)]
        self._shape = shape

    @property
    def batch_size(self) -> torch.Size:
        """Same as ``shape``."""
        return self.shape

    @batch_size.setter
    def batch_size(self, value: ShapeLike) -> None:
        self.shape = value

    @property
    def device(self) -> torch.device | None:
        """Device of the data, or None. Assigning it moves the entries."""
        return self._device

    @device.setter
    def device(self, value: DeviceLike) -> None:
        self._check_unlocked("change its device")
        if value is None:
            self.clear_device_()
            return
        self._device = as_device(value)
        self._specs = {key: None if child is None else child.to(self.device) for key, child in self._specs.items()}

    @property
    def domain(self) -> str:
        """``"composite"``."""
        return "composite"

    def __getitem__(self, index: object) -> Any:
        """Return the entry at a key, or index the batch dimensions."""
        if isinstance(index, str) or (isinstance(index, tuple) and index and is_key(index)):
            return self.get(index)
        return self._index(index)

    # Editing -----------------------------------------------------------------------------------------------------

    def set(self, name: NestedKey, spec: object) -> Self:
        """Set the entry at a key, in place; missing Composites on the path are created.

        Args:
            name: a name or a tuple of names.
            spec: a spec whose shape starts with the batch size, a mapping of entries, or None.

        Raises:
            StateError: the spec is locked.
            SpecError: ``spec`` does not fit, or a name on the path belongs to a leaf.
        """
        first, *rest = as_path(name)
        child = self._specs.get(first) if rest else None
        if not isinstance(child, Composite) or child.is_locked:
            self._check_unlocked(f"set {name!r}")
        if not rest:
            self._specs[first] = self._fitted(name, spec)
            return self
        if child is None:
            child = self._specs[first] = Composite(shape=self.shape, device=self.device)
        if not isinstance(child, Composite):
            raise SpecError(
                f"{name!r} cannot be set: the entry {first!r} is a {type(child).__name__}, not a Composite."
            )
        child.set(tuple(rest), spec)
        return self

    def _fitted(self, key: NestedKey, spec: object) -> Spec | None:
        if spec is None:
            return None
        if not isinstance(spec, Spec):
            if not isinstance(spec, Mapping):
                raise SpecError(
                    f"{key!r}: expected a spec, a mapping or None, found {type(spec).__name__} {spec!r}."
                    f"{conversion_hint(spec)}"
                )
            spec = Composite(spec, shape=self.shape, device=self.device)
        # A Composite may have a shorter batch size than its entries, and text has no other dimensions.
        if isinstance(spec, (Composite, NonTensor)) and spec.ndim < self.ndim and spec.shape == self.shape[: spec.ndim]:
            spec = spec.clone()
            spec.shape = self.shape
        self._check_prefix(key, spec, self.shape)
        if self.device is not None and spec.device != self.device:
            return spec.to(self.device)
        return spec

    def _check_prefix(self, key: NestedKey, spec: Spec, shape: torch.Size) -> None:
        if spec.shape[: len(shape)] != shape:
            raise SpecError(
                f"{key!r}: expected a spec whose shape starts with the batch size {tuple(shape)}, found "
                f"{type(spec).__name__} of shape {tuple(spec.shape)}."
                + ("" if -1 in shape else f" Expand it: spec.expand({', '.join(map(str, shape))}, *spec.shape).")
            )

    def __setitem__(self, key: NestedKey, spec: object) -> None:
        """Set the entry at a key; see :meth:`set`."""
        if not is_key(key):
            raise SpecError(
                f"Expected a name or a tuple of names, found {key!r}: the rows of a spec cannot be assigned."
            )
        self.set(key, spec)

    def pop(self, key: NestedKey, default: object = NOTHING) -> Any:
        """Remove the entry at a key, in place, and return it.

        Raises:
            KeyError: the entry is missing, and there is no default.
            StateError: the spec is locked.
        """
        *path, last = as_path(key)
        self._check_unlocked(f"remove {key!r}")
        holder = self.get(tuple(path), None) if path else self
        if not isinstance(holder, Composite) or last not in holder._children:
            if default is not NOTHING:
                return default
            raise KeyError(self._not_found(key))
        holder._check_unlocked(f"remove {key!r}")
        return self._specs.pop(last) if holder is self else holder.pop(last)

    def __delitem__(self, key: NestedKey) -> None:
        self.pop(key)

    def update(self, other: Mapping[Any, object] | Composite) -> Self:
        """Add and replace entries, in place; Composites on both sides are merged.

        Raises:
            StateError: the spec is locked.
        """
        self._check_unlocked("update it")
        for key, spec in other.items():
            mine = self.get(key, None)
            if isinstance(mine, Composite) and isinstance(spec, (Composite, Mapping)):
                mine.update(spec)
            else:
                self.set(key, spec)
        return self

    def exclude(self, *keys: NestedKey) -> Composite:
        """Return a Composite without some entries; the others are shared. Missing keys are ignored."""
        out = self.clone(recurse=False)
        for key in keys:
            out.pop(key, None)
        return out

    def separates(self, *keys: NestedKey, default: object = None) -> Composite | None:
        """Move entries out of this spec, in place, into a new Composite that is returned.

        Args:
            *keys: names or tuples of names.
            default: entry for a missing key; by default it is left out.

        Returns:
            The Composite, or None if it would be empty.
        """
        out = self._without_entries()
        for key in keys:
            entry = self.pop(key, default)
            if entry is not None:
                out.set(key, entry)
        return None if out.is_empty() else out

    def empty(self) -> Composite:
        """Return a Composite with the same shape, device, ``data_cls`` and names, without entries."""
        return self._like(self._without_entries())

    def _without_entries(self) -> Composite:
        return Composite(shape=self.shape, device=self.device, names=list(self._names))

    def _like(self, other: Composite) -> Composite:
        """Return ``other`` with the attributes of this spec."""
        other._data_cls, other.step_mdp_static = self._data_cls, self.step_mdp_static
        return other

    # Names of the batch dimensions -------------------------------------------------------------------------------

    @property
    def names(self) -> list[str | None]:
        """Names of the batch dimensions; None for a dimension without a name."""
        return list(self._names)

    @names.setter
    def names(self, value: list[str | None] | None) -> None:
        self._check_unlocked("change its names")
        self._name(self._checked_names(value))

    def _name(self, names: list[str | None]) -> None:
        """Name the batch dimensions of this spec and of nested Composites."""
        self._names = names
        for child in self._children.values():
            if isinstance(child, Composite):
                child._name([*names, *child._names[len(names) :]])

    def refine_names(self, *names: str | EllipsisType | None) -> Self:
        """Name the batch dimensions that have no name, in place; ``...`` stands for the others.

        Raises:
            SpecError: a dimension has another name, or there are too many names.
        """
        self._check_unlocked("change its names")
        rows: Any = TensorDict({}, batch_size=shapes.static(self.shape), names=self._names)  # type: ignore[arg-type]
        try:
            refined = rows.refine_names(*names).names
        except (RuntimeError, ValueError, IndexError):
            raise SpecError(f"Composite: dimensions of the names {self._names} cannot get {list(names)}.") from None
        self._name(list(refined))
        return self

    def _checked_names(self, names: Iterable[str | None] | None) -> list[str | None]:
        checked: list[str | None] = [None] * self.ndim if names is None else list(names)
        if len(checked) != self.ndim:
            raise SpecError(f"Composite: expected {self.ndim} name(s) for shape {tuple(self.shape)}, found {checked}.")
        return checked

    # Operations --------------------------------------------------------------------------------------------------

    def _apply(self, change: Change, doing: str) -> Any:
        def on_rows(data: Any) -> Any:
            # A TensorDict applies the operation to the batch dimensions, and leaves the others of the entry alone. The
            # dimension at the end is for tensordict, whose squeeze() fails for entries that become scalars.
            rows: Any = change(TensorDict({"data": data.unsqueeze(-1)}, batch_size=data.shape[: self.ndim]))
            return rows["data"].squeeze(-1)

        out = self._remake(self._shape_after(doing, change), lambda child: child._apply(on_rows, doing), None)
        return self._renamed(out, change)

    def _index(self, index: object) -> Any:
        ready = shapes.expand_index(index, self.ndim)

        def change(data: torch.Tensor) -> torch.Tensor:
            return shapes.indexed(data, ready)

        out = self._remake(self._shape_after(f"index with {index!r}", change), lambda child: child[ready], None)
        return self._renamed(out, change)

    def _renamed(self, out: Composite, change: Change) -> Composite:
        """Name the batch dimensions of ``out`` as a TensorDict names its dimensions after the operation."""
        if any(self._names):
            names: Any = self._names
            rows: Any = change(TensorDict({}, batch_size=shapes.probe_shape(self.shape), names=names))
            out._name(list(rows.names))
        return out

    def make_neg_dim(self, dim: int) -> Self:
        """Make the batch size at ``dim`` dynamic, here and in every entry, in place; return the spec."""
        at = shapes.normal_dim(dim, self.ndim, what=f"the batch size {tuple(self.shape)}")
        self._check_unlocked("make a size dynamic")
        children = list(self._entries.values())
        for child in children:
            child.clone().make_neg_dim(at)  # raises before any entry is changed
        for child in children:
            child.make_neg_dim(at)
        self._shape = torch.Size((*self.shape[:at], -1, *self.shape[at + 1 :]))
        return self

    # Copies and devices ------------------------------------------------------------------------------------------

    def _remake(self, shape: torch.Size, change: Callable[[Spec], Spec], names: list[str | None] | None) -> Self:
        """Return a Composite of another shape with every entry changed."""
        out = self._like(Composite(shape=shape, device=self.device, names=names))
        out._specs.update({key: None if child is None else change(child) for key, child in self._children.items()})
        return out  # type: ignore[return-value]

    def _nested_specs(self) -> Iterable[Composite]:
        return [child for child in self._specs.values() if isinstance(child, Composite)]

    def clone(self, recurse: bool = True) -> Self:
        """Return an unlocked copy.

        Args:
            recurse: copy the leaves too. Nested Composites are always copied.
        """

        def copied(child: Spec) -> Spec:
            if isinstance(child, Composite):
                return child.clone(recurse=recurse)
            return child.clone() if recurse else child

        return self._remake(self.shape, copied, self.names)

    def __copy__(self) -> Self:
        return self.clone(recurse=False)

    def to(self, dest: torch.device | str | int | torch.dtype | None) -> Self:
        """Return the spec with every entry on another device, or of another dtype; itself if nothing changes."""
        if dest is None:
            return self
        children = self._entries.values()
        if isinstance(dest, torch.dtype):
            if all(child.to(dest) is child for child in children):
                return self
        elif self.device == as_device(dest) and all(child.device == self.device for child in children):
            return self
        out = self._remake(self.shape, lambda child: child.to(dest), self.names)
        if not isinstance(dest, torch.dtype):
            out._device = as_device(dest)
        return out

    def clear_device_(self) -> Self:
        """Make the device None here and in every entry, in place; return the spec."""
        self._check_unlocked("clear its device")
        self._device = None
        for child in self._entries.values():
            child.clear_device_()
        return self

    def __eq__(self, other: object) -> bool:
        """Whether shape, device, ``data_cls`` and entries are equal; the order of entries and names may differ."""
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Composite)
        if (self.shape, self.device, self._data_cls) != (other.shape, other.device, other._data_cls):
            return False
        return self._specs.keys() == other._specs.keys() and all(
            child == other._specs[key] for key, child in self._specs.items()
        )

    def __repr__(self) -> str:
        head = f"shape={tuple(self.shape)}, device={None if self.device is None else str(self.device)!r}"
        return f"{type(self).__name__}({head}){listing(self._children)}"


def listing(entries: Mapping[str, object]) -> str:
    """Return entries as an indented block of text."""
    if not entries:
        return " {}"
    lines = [f"{name}: {child!r}".replace("\n", "\n    ") for name, child in entries.items()]
    return " {" + "".join(f"\n    {line}" for line in lines) + "\n}"


def conversion_hint(value: object) -> str:
    """Return how to convert a spec of TorchRL, for the end of an error; "" for other values."""
    if any(cls.__name__ == "TensorSpec" and cls.__module__.startswith("torchrl.") for cls in type(value).__mro__):
        return " It is TorchRL's: from_torchrl(spec) of steppe_torchrl converts it (pip install steppe-torchrl)."
    return ""
