"""Small functions on the data of environments."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs.done import DoneGroup, done_groups
from steppe.specs import Composite

__all__ = ["terminated_or_truncated"]


def terminated_or_truncated(
    data: TensorDictBase,
    full_done_spec: Composite | None = None,
    key: str | None = "_reset",
    write_full_false: bool = False,
) -> bool:
    """Tell whether some row has ended, and write the masks that reset it.

    Args:
        data: data with done entries, any batch size. Changed in place.
        full_done_spec: says where done entries are; by default every ``done``, ``terminated`` and ``truncated`` found.
        key: last part of the masks' keys; None writes none.
        write_full_false: write masks at levels where nothing has ended too.

    Returns:
        Whether any row has ended at a level that decides: the root where it has done entries, otherwise every group.
    """
    groups = done_groups(full_done_spec) if full_done_spec is not None else _found_groups(data, ())
    deciding = groups[:1] if groups and not groups[0].prefix else groups
    found = False
    masks: list[tuple[Any, torch.Tensor]] = []
    for group in deciding:
        ended: torch.Tensor | None = None
        for name in group.keys:
            value = data.get(name, None)
            if value is not None:
                ended = value.clone() if ended is None else ended | value
        if ended is None:
            continue
        any_ended = bool(ended.any())
        found = found or any_ended
        if any_ended or write_full_false or len(deciding) > 1:
            masks.append(((*group.prefix, key) if group.prefix else key, ended))
    if key is not None and (found or write_full_false):
        for mask_key, mask in masks:
            data.set(mask_key, mask)
    return found


def _found_groups(data: TensorDictBase, prefix: tuple[str, ...]) -> list[DoneGroup]:
    names = tuple(name for name in ("done", "terminated", "truncated") if name in data.keys())
    groups = [DoneGroup(prefix, names)] if names else []
    for name, value in data.items():
        if isinstance(value, TensorDictBase) and name != "next":
            groups += _found_groups(value, (*prefix, name))
    return groups
