"""Partial steps: the ``"_step"`` mask, and the data of rows that are not stepped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, is_non_tensor, lazy_stack

from steppe.errors import SpecError
from steppe.specs import contains_lazy_spec
from steppe.storage import build_alike, entries

if TYPE_CHECKING:
    from steppe.envs.reset_and_step import ResetAndStep

__all__ = ["merge_rows", "partial_step", "skipped_rows", "step_mask"]


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


def partial_step(env: ResetAndStep, tensordict: TensorDictBase, mask: torch.Tensor) -> TensorDictBase:
    """Return the ``next`` of a step in which only the rows are stepped whose ``mask``, ``[*B]`` bool, is True."""
    if not bool(mask.any()):
        return skipped_rows(env, tensordict)
    if bool(mask.all()):
        return env._whole_step(tensordict)
    previous = skipped_rows(env, tensordict)
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
