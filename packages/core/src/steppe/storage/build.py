"""TensorDicts built without validation, from tensors that are known to fit.

This is the only module that touches what tensordict keeps behind an underscore, and why steppe names the versions of
tensordict that it works with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from operator import attrgetter
from typing import Any

import tensordict
import torch
from tensordict import TensorDict, TensorDictBase
from torch.compiler import is_compiling

from steppe.specs import Composite

__all__ = ["TensorDictBuilder", "build_alike", "build_td", "copy_names", "entries", "has_plain_call", "parts_of"]

_EMPTY = torch.Size([])


def check_tensordict(cls: type[TensorDict], version: str) -> None:
    """Refuse a tensordict that keeps its entries in another way.

    Raises:
        ImportError: with the command that fixes it.
    """
    sample = cls({}, [])
    parts = ("_new_unsafe", "_tensordict", "_batch_size", "_device", "_is_locked", "_td_dim_names")
    if any(not hasattr(sample, name) for name in parts) or "nested" not in signature(cls._new_unsafe).parameters:
        raise ImportError(
            f"steppe cannot work with tensordict {version}, which is built in another way than 0.14.3 to 0.15: "
            "pip install 'tensordict>=0.14.3,<0.16'"
        )


check_tensordict(TensorDict, str(tensordict.__version__))
_unsafe: Callable[..., TensorDict] = TensorDict._new_unsafe


# Whether a TensorDict is these attributes and nothing else, as in all versions so far: it is then put together here.
_KINDS = {"_tensordict": dict, "_batch_size": torch.Size, "_device": type(None), "_td_dim_names": type(None)}
_IS_PLAIN = {name: type(value) for name, value in vars(_unsafe({}, _EMPTY, None, nested=False)).items()} == _KINDS
_new: Callable[[type[TensorDict]], TensorDict] = object.__new__

#: The first level of a plain TensorDict as a dict: for reading, or for writing what is known to fit. Made in C, because
#: a step asks for it ten times.
entries: Callable[[TensorDict], dict[str, Any]] = attrgetter("_tensordict")

#: The same with the batch size, the device and whether it is locked, in a third of the time that asking for each takes.
parts_of: Callable[[TensorDict], tuple[dict[str, Any], torch.Size, torch.device | None, bool]] = attrgetter(
    "_tensordict", "_batch_size", "_device", "_is_locked"
)


def build_td(source: dict[str, Any], batch_size: torch.Size = _EMPTY, device: torch.device | None = None) -> TensorDict:
    """Make a TensorDict that takes over ``source``.

    Args:
        source: names to tensors or TensorDicts whose leading dimensions are ``batch_size``.
        batch_size: leading dimensions of every value.
        device: the device of every value, or None to claim none.

    Returns:
        A TensorDict, 15 times faster than the public constructor, because nothing is checked.
    """
    if not _IS_PLAIN or is_compiling():
        return _unsafe(source, batch_size, device, nested=False)
    td = _new(TensorDict)
    td._tensordict, td._batch_size = source, batch_size
    td._device, td._td_dim_names = device, None
    return td


def build_alike(source: dict[str, Any], other: TensorDict) -> TensorDict:
    """The same for values that all are tensors, with the batch size, the device and the names of ``other``."""
    td = build_td(source, other._batch_size, other._device)
    names = other._td_dim_names
    if names is not None:
        td._td_dim_names = list(names)
    return td


def copy_names(source: TensorDict, target: TensorDict) -> TensorDict:
    """Give ``target`` the dimension names of ``source``, where it has any; returns ``target``."""
    if source._td_dim_names is not None:
        target.names = source.names
    return target


class TensorDictBuilder:
    """Nests flat ``{key: tensor}`` data as a :class:`~steppe.specs.Composite` says, with a plan made once.

    Args:
        spec: says which keys there are and the batch size of each level.
        rows: dimensions in front of the spec's own shape.
        device: the device that the TensorDicts claim.
    """

    def __init__(self, spec: Composite, rows: tuple[int, ...] = (), *, device: torch.device | None = None) -> None:
        self.batch_size = torch.Size((*rows, *spec.shape))
        self.device = device
        self._leaves: list[str] = []
        self._nodes: list[tuple[str, TensorDictBuilder, list[str | tuple[str, ...]]]] = []
        for name, child in spec.items():
            if isinstance(child, Composite):
                builder = TensorDictBuilder(child, rows, device=device)
                self._nodes.append((name, builder, builder.flat_keys(prefix=(name,))))
            elif child is not None:
                self._leaves.append(name)

    def flat_keys(self, prefix: tuple[str, ...] = ()) -> list[str | tuple[str, ...]]:
        """Return the keys of all leaves, as strings at the first level and tuples below it."""
        own: list[str | tuple[str, ...]] = [(*prefix, name) if prefix else name for name in self._leaves]
        for name, builder, _ in self._nodes:
            own += builder.flat_keys((*prefix, name))
        return own

    def __call__(self, flat: Mapping[Any, torch.Tensor]) -> TensorDict:
        """Build the TensorDict; keys of the plan that ``flat`` lacks are left out."""
        if not self._nodes:
            return build_td({name: flat[name] for name in self._leaves if name in flat}, self.batch_size, self.device)
        return self._nested(flat, ())

    def _nested(self, flat: Mapping[Any, torch.Tensor], prefix: tuple[str, ...]) -> TensorDict:
        source: dict[str, torch.Tensor | TensorDictBase] = {}
        for name in self._leaves:
            key = (*prefix, name) if prefix else name
            if key in flat:
                source[name] = flat[key]
        for name, builder, _ in self._nodes:
            source[name] = builder._nested(flat, (*prefix, name))
        return build_td(source, self.batch_size, self.device)


def has_plain_call(module: object) -> bool:
    """Whether a module of tensordict reads and writes the data that it is called with, and nothing more.

    False where options were chosen that its call acts upon: arguments by name, selected outputs, its own generator, a
    sample that modules before it have drawn.
    """
    own = vars(module)
    return (
        own.get("_kwargs") is None
        and not own.get("_select_before_return", False)
        and own.get("_generator") is None
        and own.get("_generator_key") is None
        and own.get("_requires_sample", True) is not False
    )
