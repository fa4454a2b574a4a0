"""terminated_or_truncated: whether rows of data have ended, and the masks that reset them."""

from __future__ import annotations

import functools

import torch
from tensordict import TensorDictBase

from steppe.envs import DoneGroup, done_groups
from steppe.specs import Composite

__all__ = ["terminated_or_truncated"]

_NAMES = ("done", "terminated", "truncated")


def terminated_or_truncated(
    data: TensorDictBase,
    full_done_spec: Composite | None = None,
    key: str | None = "_reset",
    write_full_false: bool = False,
) -> bool:
    """Return whether some row has ended, and write the masks that reset it.

    >>> import torch
    >>> from steppe_torchrl import terminated_or_truncated
    >>> from tensordict import TensorDict
    >>> terminated, truncated = torch.tensor([[True], [False]]), torch.tensor([[False], [False]])
    >>> data = TensorDict(terminated=terminated, truncated=truncated, batch_size=[2])
    >>> terminated_or_truncated(data), data["_reset"].flatten()
    (True, tensor([ True, False]))

    Args:
        data: data with done entries, any batch size. Changed in place.
        full_done_spec: where the done entries are; by default every ``done``, ``terminated`` and ``truncated`` in
            ``data``.
        key: last part of the masks' keys; None writes none.
        write_full_false: write masks also if no row has ended.

    Returns:
        Whether a row has ended at a level that decides: the root if it has done entries, otherwise every group.
    """
    groups = _groups_in(data, ()) if full_done_spec is None else done_groups(full_done_spec)
    levels: list[tuple[DoneGroup, torch.Tensor]] = []
    for group in groups[:1] if groups and not groups[0].prefix else groups:
        flags = [value for name in group.names if (value := data.get(group.key(name), None)) is not None]
        if flags:
            levels.append((group, functools.reduce(torch.logical_or, flags)))
    ended = any(bool(flag.any()) for _, flag in levels)
    if key is not None and (ended or write_full_false):
        for group, flag in levels:
            data.set(group.key(key), flag.clone())
    return ended


def _groups_in(data: TensorDictBase, prefix: tuple[str, ...]) -> list[DoneGroup]:
    """Find the levels of data that have done entries."""
    names = tuple(name for name in _NAMES if name in data.keys())
    groups = [DoneGroup(prefix, names)] if names else []
    for name, value in data.items():
        if isinstance(value, TensorDictBase) and name != "next":
            groups += _groups_in(value, (*prefix, name))
    return groups
