"""Functions that build TensorDicts without validation, from valid tensors.

This is the only module that uses private attributes of tensordict. They are the reason why steppe supports only the
versions of tensordict in its requirements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_non_tensor, is_tensor_collection
from torch.compiler import is_compiling

from steppe.specs import Composite

__all__ = [
    "TensorDictBuilder",
    "build_alike",
    "build_td",
    "copy_names",
    "entries",
    "find_entry",
    "has_plain_call",
    "level_at",
    "name_dims",
    "parts_of",
    "shallow_copy",
]

_EMPTY = torch.Size([])

_unsafe: Callable[..., TensorDict] = TensorDict._new_unsafe


# Whether a TensorDict has exactly these attributes, as in all versions so far. `build_td` then sets them itself.
_KINDS = {"_tensordict": dict, "_batch_size": torch.Size, "_device": type(None), "_td_dim_names": type(None)}
_IS_PLAIN = {name: type(value) for name, value in vars(_unsafe({}, _EMPTY, None, nested=False)).items()} == _KINDS
_new: Callable[[type[TensorDict]], TensorDict] = object.__new__

#: Returns the first level of a plain TensorDict as a dict, to read it, or to write valid entries. It is a C function,
#: because each step calls it ten times.
entries: Callable[[TensorDict], dict[str, Any]] = attrgetter("_tensordict")

#: Returns the same, the batch size, the device and whether it is locked, in a third of the time of separate calls.
parts_of: Callable[[TensorDict], tuple[dict[str, Any], torch.Size, torch.device | None, bool]] = attrgetter(
    "_tensordict", "_batch_size", "_device", "_is_locked"
)


def level_at(data: object, path: Sequence[str]) -> dict[str, Any] | None:
    """Return the entries of the level at a path as a dict; None if it or a level above it is no plain TensorDict."""
    for name in path:
        if type(data) is not TensorDict:
            return None
        data = entries(data).get(name)
    return entries(data) if type(data) is TensorDict else None


def find_entry(data: TensorDictBase, key: str | tuple[str, ...]) -> Any:
    """Return an entry, or None, in a tenth of the time of ``get``."""
    if type(key) is str:  # most entries, in each step
        return entries(data).get(key) if type(data) is TensorDict else data.get(key, None)
    value: Any = data
    for name in key:
        value = entries(value).get(name) if type(value) is TensorDict else value.get(name, None)
        if value is None:
            return None
    return value


def build_td(source: dict[str, Any], batch_size: torch.Size = _EMPTY, device: torch.device | None = None) -> TensorDict:
    """Make a TensorDict that takes over ``source``.

    Args:
        source: names to tensors or TensorDicts whose leading dimensions are ``batch_size``.
        batch_size: leading dimensions of every value.
        device: the device of every value, or None.

    Returns:
        A TensorDict. Without checks, this is 15 times faster than the public constructor.
    """
    if not _IS_PLAIN or is_compiling():
        return _unsafe(source, batch_size, device, nested=False)
    td = _new(TensorDict)
    td._tensordict, td._batch_size = source, batch_size
    td._device, td._td_dim_names = device, None
    return td


def build_alike(source: dict[str, Any], other: TensorDict) -> TensorDict:
    """Make a TensorDict of tensors with the batch size, device and dimension names of ``other``."""
    td = build_td(source, other._batch_size, other._device)
    names = other._td_dim_names
    if names is not None:
        td._td_dim_names = list(names)
    return td


def copy_names(source: TensorDict, target: TensorDict) -> TensorDict:
    """Copy the dimension names of ``source``, if any, to ``target``; return ``target``."""
    if source._td_dim_names is not None:
        target.names = source.names
    return target


def name_dims(td: TensorDictBase, names: list[str | None]) -> None:
    """Name the leading dimensions of a TensorDict and of those in it.

    Text keeps its own names: tensordict would visit each datum, which for a rollout takes longer than its steps.
    """
    every = [*names, *[None] * (td.batch_dims - len(names))]
    if type(td) is not TensorDict:
        td.names = every
        return
    object.__setattr__(td, "_td_dim_names", every)
    for value in td._tensordict.values():
        if is_tensor_collection(value) and not is_non_tensor(value):
            name_dims(value, names)


class TensorDictBuilder:
    """Build nested TensorDicts from flat ``{key: tensor}`` data, with a plan made once from a Composite.

    Args:
        spec: determines the keys and the batch size of each level.
        rows: dimensions in front of the spec's shape.
        device: device of the TensorDicts.
    """

    def __init__(self, spec: Composite, rows: tuple[int, ...] = (), *, device: torch.device | None = None) -> None:
        self.batch_size = torch.Size((*rows, *spec.shape))
        self.device = device
        self._leaves: list[str] = []
        self._nodes: list[tuple[str, TensorDictBuilder]] = []
        for name, child in spec.items():
            if isinstance(child, Composite):
                self._nodes.append((name, TensorDictBuilder(child, rows, device=device)))
            elif child is not None:
                self._leaves.append(name)

    def __call__(self, flat: Mapping[Any, torch.Tensor]) -> TensorDict:
        """Build the TensorDict; keys that are missing in ``flat`` are left out."""
        if not self._nodes:
            return build_td({name: flat[name] for name in self._leaves if name in flat}, self.batch_size, self.device)
        return self._nested(flat, ())

    def _nested(self, flat: Mapping[Any, torch.Tensor], prefix: tuple[str, ...]) -> TensorDict:
        source: dict[str, torch.Tensor | TensorDictBase] = {}
        for name in self._leaves:
            key = (*prefix, name) if prefix else name
            if key in flat:
                source[name] = flat[key]
        for name, builder in self._nodes:
            source[name] = builder._nested(flat, (*prefix, name))
        return build_td(source, self.batch_size, self.device)


def has_plain_call(module: object) -> bool:
    """Whether a call of a tensordict module only reads its inputs and writes its outputs.

    False if options change the call: keyword arguments, selected outputs, a generator, or a sample that an earlier
    module has drawn.
    """
    options = vars(module)
    return (
        options.get("_kwargs") is None
        and not options.get("_select_before_return", False)
        and options.get("_generator") is None
        and options.get("_generator_key") is None
        and options.get("_requires_sample", True) is not False
    )


def shallow_copy(tensordict: TensorDictBase) -> TensorDictBase:
    """Return a copy that shares the tensors; its levels can be written into."""
    if type(tensordict) is not TensorDict:
        return tensordict.copy()
    level = {
        name: value if isinstance(value, torch.Tensor) else shallow_copy(value)
        for name, value in entries(tensordict).items()
    }
    return copy_names(tensordict, build_td(level, tensordict.batch_size, tensordict.device))
