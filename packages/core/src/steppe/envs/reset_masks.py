"""Masks of rows: those that a step leaves out (``"_step"``), and those that a reset is for (``"_reset"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, is_non_tensor, lazy_stack

from steppe.envs.done import DoneGroup, Masks
from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, contains_lazy_spec
from steppe.storage import build_alike, entries

if TYPE_CHECKING:
    from steppe.envs.env_attributes import EnvAttributes
    from steppe.envs.reset_and_step import ResetAndStep

__all__ = [
    "asked_state",
    "clear_masks",
    "merge_reset",
    "merge_rows",
    "partial_step",
    "requested_masks",
    "skipped_rows",
    "step_mask",
]


# -- steps ------------------------------------------------------------------------------------------------------------


def step_mask(tensordict: TensorDictBase, mask: torch.Tensor) -> torch.Tensor:
    """Return a step mask in the batch size of the data, ``[*B]`` bool; a trailing dimension of 1 is removed.

    Raises:
        SpecError: the mask has another shape.
    """
    shape = tensordict.batch_size
    if mask.shape == shape:
        return mask
    if mask.shape == torch.Size((*shape, 1)):
        return mask.squeeze(-1)
    raise SpecError(f"'_step' must have the shape of the data, {tuple(shape)}, found {tuple(mask.shape)}.")


def partial_step(
    env: ResetAndStep, tensordict: TensorDictBase, mask: torch.Tensor, known: TensorDictBase
) -> TensorDictBase:
    """Return the ``next`` of a step in which only the rows are stepped whose ``mask``, ``[*B]`` bool, is True.

    The others get their values in ``known``.
    """
    if not bool(mask.any()):
        return skipped_rows(env, known)
    if bool(mask.all()):
        return env._whole_step(tensordict)
    previous = skipped_rows(env, known)
    if not env.batch_locked and not env.batch_size:
        env._expectation.check_action(tensordict, acting=mask)
        stepped = env._whole_step(tensordict[mask])
        previous = previous.clone()
        previous[mask] = stepped
        return previous
    tensordict.set("_step", mask)
    try:
        following = env._whole_step(tensordict)
    finally:
        tensordict.pop("_step", None)
    merged: TensorDictBase = merge_rows(mask, following, previous)
    return merged


def skipped_rows(env: ResetAndStep, tensordict: TensorDictBase) -> TensorDictBase:
    """Return the ``next`` of rows that are not stepped: the values of the root if it has them, and rewards of 0."""
    lead = tensordict.batch_size[: tensordict.batch_dims - len(env.batch_size)]
    following = tensordict.empty()
    for spec, keys in (
        (env.full_observation_spec, env.observation_keys),
        (env.full_reward_spec, env.reward_keys),
        (env.full_done_spec, env.done_keys),
    ):
        rewards = spec is env.full_reward_spec
        if isinstance(tensordict, LazyStackedTensorDict) or contains_lazy_spec(spec):
            zero = spec.zero(lead)
            following.update(zero if rewards else _known(zero, tensordict))
            continue
        zero = None
        for key in keys:
            value = tensordict.get(key, None) if not rewards else None
            if value is None:
                if zero is None:
                    zero = spec.zero(lead)
                value = zero.get(key)
            following.set(key, value)
    return following


def _known(zero: Any, data: Any) -> Any:
    """Return ``zero`` with the values that ``data`` has; lazy stacks are filled row by row."""
    for stack in (zero, data):
        if isinstance(stack, LazyStackedTensorDict):
            dim = stack.stack_dim
            rows = zip(zero.unbind(dim), data.unbind(dim), strict=True)
            return lazy_stack([_known(row, known) for row, known in rows], dim)
    out = zero.copy()
    for name in zero.keys():
        known = data.get(name, None)
        if known is not None:
            value = zero.get(name)
            nested = isinstance(value, TensorDictBase) and not is_non_tensor(value)
            out.set(name, _known(value, known) if nested else known)
    return out


def merge_rows(mask: torch.Tensor, new: Any, old: Any) -> Any:
    """Take rows of ``new`` where ``mask`` is True and rows of ``old`` elsewhere, entry by entry.

    Args:
        mask: ``[*B]`` bool.
        new: data of batch size ``[*B, ...]``, whose keys the result has.
        old: data that may lack keys, for which the result gets 0.

    Returns:
        Data like ``new``; a lazy stack if rows have different shapes.
    """
    if is_non_tensor(new):  # tested first, because a stack of non-tensors is a lazy stack too
        return _merge_non_tensors(mask, new, old)
    for stack in (new, old):
        if isinstance(stack, LazyStackedTensorDict):
            return _merge_parts(mask, new, old, stack.stack_dim)
    # The methods of a TensorDict take longer than the operations on a few rows.
    plain = type(new) is TensorDict
    values = entries(new) if plain else {key: new.get(key) for key in new.keys(is_leaf=_is_leaf)}
    before = entries(old) if type(old) is TensorDict else old
    merged: dict[str, Any] = {}
    for key, value in values.items():
        previous = before.get(key, None)
        if isinstance(value, torch.Tensor):
            if previous is None:
                previous = torch.zeros_like(value)
            if value.shape != previous.shape:
                if mask.ndim:
                    return _merge_parts(mask, new, old, 0)
                merged[key] = value if mask else previous
                continue
            shaped = mask.reshape(mask.shape + (1,) * (value.ndim - mask.ndim))
            merged[key] = torch.where(shaped, value, previous)
        elif isinstance(value, TensorDictBase) and not _is_leaf(type(value)):
            merged[key] = merge_rows(mask, value, previous if previous is not None else value.empty())
        else:
            merged[key] = value if previous is None else _merge_non_tensors(mask, value, previous)
    return build_alike(merged, new) if plain else new.empty().update(merged)


def _merge_parts(mask: torch.Tensor, new: Any, old: Any, dim: int) -> Any:
    """Merge data whose parts along a dimension differ, part by part."""
    parts = new.unbind(dim)
    before = old.unbind(dim) if old.batch_size[: dim + 1] == new.batch_size[: dim + 1] else [{}] * len(parts)
    masks = mask.unbind(dim) if dim < mask.ndim else [mask] * len(parts)
    return lazy_stack([merge_rows(*each) for each in zip(masks, parts, before, strict=True)], dim)


def _merge_non_tensors(mask: torch.Tensor, new: Any, old: Any) -> Any:
    """Merge non-tensor data row by row: ``torch.where`` would keep one value for all rows."""
    if bool(mask.all()):
        return new
    if not bool(mask.any()):
        return old
    rows = zip(mask.unbind(0), new.unbind(0), old.unbind(0), strict=True)
    return lazy_stack([_merge_non_tensors(*parts) for parts in rows], 0)


def _is_leaf(cls: type) -> bool:
    return not issubclass(cls, TensorDictBase) or is_non_tensor(cls)


# -- resets -----------------------------------------------------------------------------------------------------------


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
        mask = _reset_mask(tensordict, group)
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


def _reset_mask(tensordict: TensorDictBase, group: DoneGroup) -> torch.Tensor | None:
    """Return the mask of a level, which one at a level above overrides; None if all rows of the level are reset."""
    for depth in range(len(group.prefix) + 1):
        key = (*group.prefix[:depth], "_reset") if depth else "_reset"
        mask: torch.Tensor | None = tensordict.get(key, None)
        if mask is not None:
            return mask
    return None


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
