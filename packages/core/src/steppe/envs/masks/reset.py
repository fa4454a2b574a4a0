"""Masks of a partial reset, and merging the result of a reset into the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, is_non_tensor, lazy_stack

from steppe.envs.done import DoneGroup, Masks, reset_mask
from steppe.envs.masks.step import merge_rows
from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU
from steppe.storage import entries

if TYPE_CHECKING:
    from steppe.envs.env_attributes import EnvAttributes

__all__ = ["asked_state", "clear_masks", "merge_reset", "requested_masks"]


def asked_state(env: EnvAttributes, tensordict: TensorDictBase | None, *, set_state: bool) -> dict[str, Any]:
    """Return the argument ``set_state`` of ``_reset``, or no arguments if the environment does not support it.

    Raises:
        NotSupported: ``set_state`` is True, and the environment does not support it.
        TypeError: ``set_state`` is True, and there is no data with a state.
    """
    if not env.supports_set_state:
        if set_state:
            raise NotSupported(
                f"{type(env).__name__} cannot be put into a state: reset(set_state=True) is for environments whose "
                "class says _supports_set_state = True. Leave set_state out."
            )
        return {}
    if set_state and tensordict is None:
        raise TypeError("reset(set_state=True) needs tensordict=, the data with the state to begin at.")
    return {"set_state": bool(set_state)}


def requested_masks(env: EnvAttributes, tensordict: TensorDictBase) -> Masks:
    """Return the ``"_reset"`` masks in ``tensordict`` by the prefix of their level; an empty dict resets everything.

    A level without a mask at it or above it is reset in all rows, whatever masks other levels have.

    Raises:
        SpecError: a mask is not bool, or is at a level without done entries.
    """
    masks: Masks = {}
    groups: list[DoneGroup] = env.done_groups
    _refuse_stray_masks(tensordict, groups)
    for group in groups:
        mask = reset_mask(tensordict, group)
        if mask is not None:
            if mask.dtype is not torch.bool:
                raise SpecError(f"The mask {group.reset_key!r} must be bool, found {mask.dtype}.")
            masks[group.prefix] = mask
    if masks:
        for group in groups:
            if group.prefix not in masks:
                done = tensordict.get(group.key("done"), None)
                shape = done.shape if done is not None else torch.Size((*tensordict.batch_size, 1))
                where = tensordict.device or (CPU if done is None else done.device)
                masks[group.prefix] = torch.ones(shape, dtype=torch.bool, device=where)
    return masks


def _refuse_stray_masks(tensordict: TensorDictBase, groups: list[DoneGroup]) -> None:
    """Raise a SpecError for a mask at a level that does not end by itself: it would be ignored, and all rows reset."""
    if type(tensordict) is TensorDict and not any(
        isinstance(value, TensorDictBase) for value in entries(tensordict).values()
    ):
        masks: set[Any] = {"_reset"} & entries(tensordict).keys()
    else:
        keys = tensordict.keys(include_nested=True, leaves_only=True)
        masks = {key for key in keys if (key[-1] if isinstance(key, tuple) else key) == "_reset" and key[0] != "next"}
    stray = masks - {group.reset_key for group in groups}
    if stray:
        raise SpecError(
            f"There is a mask at {min(stray, key=str)!r}, a level without done entries, which cannot be reset by "
            f"itself. This environment takes masks at {[group.reset_key for group in groups]}."
        )


def clear_masks(tensordict: TensorDictBase, groups: list[DoneGroup]) -> TensorDictBase:
    """Remove the reset masks from ``tensordict``, in place."""
    tensordict.pop("_reset", None)
    for group in groups:
        if group.prefix and tensordict.get(group.reset_key, None) is not None:
            tensordict.pop(group.reset_key, None)
    return tensordict


def merge_reset(
    tensordict: TensorDictBase,
    fresh: TensorDictBase,
    groups: list[DoneGroup],
    masks: Masks,
) -> TensorDictBase:
    """Write ``fresh`` into ``tensordict`` where the masks are True (everywhere without masks), and drop the masks.

    Entries outside of levels with a mask are reset in the rows in which some mask is True.

    Returns:
        ``tensordict``, or a lazy stack if rows have different shapes afterwards, which ``tensordict`` cannot hold.
    """
    clear_masks(tensordict, groups)
    clear_masks(fresh, groups)
    if not masks:
        return tensordict.update(fresh)
    root = masks.get(())
    if root is not None:
        merged = merge_rows(_rows(root, tensordict), fresh, tensordict)
        return _updated(tensordict, merged)
    size = tensordict.batch_size
    rows = torch.stack([mask.reshape((*size, -1)).any(-1) for mask in masks.values()]).any(0)
    _merge_level(tensordict, fresh, (), masks, rows)
    return tensordict


def _updated(tensordict: TensorDictBase, merged: TensorDictBase) -> TensorDictBase:
    if isinstance(merged, LazyStackedTensorDict) and not isinstance(tensordict, LazyStackedTensorDict):
        dim = merged.stack_dim
        rows = zip(tensordict.unbind(dim), merged.unbind(dim), strict=True)
        return lazy_stack([before.copy().update(row) for before, row in rows], dim)
    return tensordict.update(merged)


def _rows(mask: torch.Tensor, tensordict: TensorDictBase) -> torch.Tensor:
    """Return a mask ``[*B, 1]`` in the batch size ``[*B]`` of its level."""
    if mask.ndim > tensordict.batch_dims and mask.shape[-1] == 1:
        return mask.squeeze(-1)
    return mask


def _merge_level(
    target: TensorDictBase,
    fresh: TensorDictBase,
    prefix: tuple[str, ...],
    masks: Masks,
    rows: torch.Tensor,
) -> None:
    """Merge if only nested levels have masks: entries outside of these levels are reset with their row."""
    outside = []
    for name in list(fresh.keys()):
        value = fresh.get(name)
        path = (*prefix, name)
        old = target.get(name, None)
        if not isinstance(value, TensorDictBase) or is_non_tensor(value):
            outside.append(name)
        elif old is None:
            target.set(name, value)
        elif path in masks:
            old.update(merge_rows(_rows(masks[path], old), value, old))
        else:
            _merge_level(old, value, path, masks, rows)
    if outside:
        target.update(merge_rows(rows, fresh.select(*outside), target))
