"""Stack the data of steps along a time dimension: whole TensorDicts, or one entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_leaf_nontensor,
    is_non_tensor,
    lazy_stack,
)

from steppe.envs.data_types import Key
from steppe.errors import NotSupported, PolicyError
from steppe.storage import build_td, entries, large_tensor

__all__ = ["Columns", "padding_like", "stack_column", "stack_frames"]

#: Entries of many steps by their path.
Columns = Mapping[tuple[str, ...], torch.Tensor]

# Of one environment, and of a batch.
_TEXT = (NonTensorData, NonTensorStack)


def stack_frames(
    frames: list[TensorDictBase],
    dim: int,
    *,
    contiguous: bool | None = False,
    known: Columns | None = None,
    memory: Columns | None = None,
) -> TensorDictBase:
    """Stack steps along a new time dimension.

    Args:
        frames: data of single steps.
        dim: position of the time dimension: behind the batch.
        contiguous: True stacks or raises; False returns a lazy stack if shapes or keys differ.
        known: entries that are stacked already, by their path.
        memory: memory for entries of the result, by their path, which is used if it fits.

    Raises:
        NotSupported: ``contiguous`` is True, and the frames cannot be stacked; the text names an entry.
    """
    stacked = _stack_plain(frames, dim, known or {}, memory or {})
    if stacked is not None:
        return stacked
    try:
        rows: Any = frames  # torch's own annotation knows tensors only
        return torch.stack(rows, dim)  # type: ignore[return-value]
    except (RuntimeError, KeyError, ValueError) as error:
        if contiguous:
            raise NotSupported(f"The steps cannot be stacked, because {_difference(frames)}.") from error
    frames[0] = frames[0].copy()  # it may be the caller's TensorDict
    lazy: LazyStackedTensorDict = lazy_stack(frames, dim)
    return lazy


def _stack_plain(
    frames: list[TensorDictBase], dim: int, known: Columns, memory: Columns, above: tuple[str, ...] = ()
) -> TensorDict | None:
    """Stack TensorDicts with equal keys and shapes leaf by leaf, 4 times faster than ``torch.stack``."""
    first = frames[0]
    if type(first) is not TensorDict:
        return None
    levels = []
    for frame in frames:
        if type(frame) is not TensorDict:
            return None
        levels.append(entries(frame))
    names = levels[0].keys()
    if any(level.keys() != names for level in levels):
        return None
    out: dict[str, Any] = {}
    for name in names:
        column: list[Any] = [level[name] for level in levels]
        head, path = column[0], (*above, name)
        if path in known:
            out[name] = known[path]
        elif isinstance(head, torch.Tensor):
            try:
                out[name] = torch.stack(column, dim, out=_room(column, dim, memory.get(path)))
            except RuntimeError:  # shapes differ
                return None
        elif type(head) in _TEXT:
            out[name] = torch.stack(column, dim)
        else:
            nested = _stack_plain(column, dim, known, memory, path)
            if nested is None:
                return None
            out[name] = nested
    batch_size = list(first.batch_size)
    batch_size.insert(dim, len(frames))
    return build_td(out, torch.Size(batch_size), first.device)


def stack_column(key: Key, column: list[Any], dim: int, memory: torch.Tensor | None = None) -> Any:
    """Stack one entry of many steps, which a policy has written.

    Args:
        key: its key, for errors.
        column: its values.
        dim: position of the time dimension.
        memory: memory for the result, which is used if it fits.

    Raises:
        PolicyError: the values have different shapes.
    """
    try:
        return torch.stack(column, dim, out=_room(column, dim, memory) if isinstance(column[0], torch.Tensor) else None)
    except RuntimeError as error:
        shapes = sorted({tuple(value.shape) for value in column})
        raise PolicyError(f"The policy wrote {key!r} with different shapes: {shapes}.") from error


def _room(column: list[torch.Tensor], dim: int, memory: torch.Tensor | None) -> torch.Tensor | None:
    """Return memory for the steps of an entry: the given one, or, for a large entry, one that is used again later.

    None lets torch allocate it.
    """
    head = column[0]
    if torch.is_grad_enabled() and any(value.requires_grad for value in column):
        return None
    shape = (*head.shape[:dim], len(column), *head.shape[dim:])
    fits = memory is not None and memory.shape == shape and memory.device == head.device
    room = memory if fits else large_tensor(shape, head)
    return None if room is None or any(value.dtype is not room.dtype for value in column) else room


def padding_like(data: Any) -> Any:
    """Return zeros with the entries of ``data``, a tensor or a TensorDict; text and the like are None."""
    if isinstance(data, torch.Tensor):
        return torch.zeros_like(data)
    if is_non_tensor(data):
        return NonTensorData(None, batch_size=data.batch_size)
    padding = data.clone().zero_()
    for key, value in list(padding.items(True, True, is_leaf=is_leaf_nontensor)):
        if is_non_tensor(value):
            padding.set_non_tensor(key, None)
    return padding


def _difference(frames: list[TensorDictBase]) -> str:
    first, *others = ({key: _shape(value) for key, value in frame.items(True, True)} for frame in frames)
    for other in others:
        for key in sorted({*first, *other}, key=lambda key: (isinstance(key, tuple), str(key))):
            if key not in other:
                return f"{key!r} is missing in some"
            if key not in first:
                return f"{key!r} is new in some"
            if first[key] != other[key]:
                return f"the shape of {key!r} changes from {first[key]} to {other[key]}"
    return "their entries differ"


def _shape(value: object) -> tuple[int, ...] | None:
    shape = getattr(value, "shape", None)
    return None if shape is None else tuple(shape)
