"""Stack the data of steps along a time dimension: whole TensorDicts, or one entry."""

from __future__ import annotations

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

__all__ = ["padding_like", "stack_column", "stack_frames"]

# Of one environment, and of a batch.
_TEXT = (NonTensorData, NonTensorStack)


def stack_frames(frames: list[TensorDictBase], dim: int, *, contiguous: bool | None = False) -> TensorDictBase:
    """Stack steps along a new time dimension.

    Args:
        frames: data of single steps.
        dim: position of the time dimension: behind the batch.
        contiguous: True stacks or raises; False returns a lazy stack if shapes or keys differ.

    Raises:
        NotSupported: ``contiguous`` is True, and the frames cannot be stacked; the text names an entry.
    """
    stacked = _stack_plain(frames, dim)
    if stacked is not None:
        return stacked
    try:
        rows: Any = frames  # torch's own annotation knows tensors only
        return torch.stack(rows, dim)  # type: ignore[return-value]
    except (RuntimeError, KeyError, ValueError) as error:
        if contiguous:
            raise NotSupported(
                f"rollout(return_contiguous=True): the steps cannot be stacked, {_difference(frames)}. "
                "Call it with return_contiguous=False."
            ) from error
    frames[0] = frames[0].copy()  # it may be the caller's TensorDict
    lazy: LazyStackedTensorDict = lazy_stack(frames, dim)
    return lazy


def _stack_plain(frames: list[TensorDictBase], dim: int) -> TensorDict | None:
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
        head = column[0]
        if isinstance(head, torch.Tensor):
            try:
                out[name] = torch.stack(column, dim, out=_room(column, dim))
            except RuntimeError:  # shapes differ
                return None
        elif type(head) in _TEXT:
            out[name] = torch.stack(column, dim)
        else:
            nested = _stack_plain(column, dim)
            if nested is None:
                return None
            out[name] = nested
    batch_size = list(first.batch_size)
    batch_size.insert(dim, len(frames))
    return build_td(out, torch.Size(batch_size), first.device)


def stack_column(key: Key, column: list[Any], dim: int, room: torch.Tensor | None = None) -> Any:
    """Stack one entry of many steps, which a policy has written.

    Args:
        key: its key, for errors.
        column: its values.
        dim: position of the time dimension.
        room: memory for the result, which is used if it fits; None for new memory.

    Raises:
        PolicyError: the values have different shapes.
    """
    if room is not None and _fits(room, column, dim):
        return torch.stack(column, dim, out=room)
    try:
        return torch.stack(column, dim)
    except RuntimeError as error:
        shapes = sorted({tuple(value.shape) for value in column})
        raise PolicyError(f"The policy wrote {key!r} with different shapes: {shapes}.") from error


def _fits(room: torch.Tensor, column: list[torch.Tensor], dim: int) -> bool:
    shape = torch.Size((*room.shape[:dim], *room.shape[dim + 1 :]))
    return all(value.shape == shape and value.dtype is room.dtype for value in column)


def _room(column: list[torch.Tensor], dim: int) -> torch.Tensor | None:
    """Return memory for the steps of a large entry, which later rollouts use again; None to let torch allocate it."""
    head = column[0]
    room = large_tensor((*head.shape[:dim], len(column), *head.shape[dim:]), head)
    if room is None or (torch.is_grad_enabled() and any(value.requires_grad for value in column)):
        return None
    return None if any(value.dtype is not head.dtype for value in column) else room


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
    first = {key: getattr(value, "shape", None) for key, value in frames[0].items(True, True)}
    for frame in frames[1:]:
        other = {key: getattr(value, "shape", None) for key, value in frame.items(True, True)}
        for key in sorted({*first, *other}, key=lambda key: (isinstance(key, tuple), str(key))):
            if first.get(key) != other.get(key):
                return f"because the shape of {key!r} changes from {first.get(key)} to {other.get(key)}"
    return "because their entries differ"
