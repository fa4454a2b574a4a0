"""The root of the next step: what ``step_mdp`` keeps, and the first data of rows that begin a new episode.

Single steps, rollouts, batches, collectors and requests make their next root here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_non_tensor,
    is_tensorclass,
    lazy_stack,
)
from torch import Tensor

from steppe.envs.data_types import Array, Key
from steppe.specs import as_path
from steppe.storage import build_alike, build_td, copy_names, copy_rows, entries, parts_of

__all__ = ["FlatRoots", "StepPlan", "begun", "put_next", "step_mdp", "write_begun", "written_by_policy"]


# Values that are shared with the data of the step before, not copied: they are replaced, never written to.
_LEAVES = frozenset((Tensor, NonTensorData, NonTensorStack))
_from_numpy = torch.from_numpy

#: Keys by level: an empty dict stands for the whole entry of that name.
_Tree: TypeAlias = "dict[str, _Tree]"


class StepPlan:
    """Which entries ``step_mdp`` drops, worked out once from the specs.

    Args:
        drop_root: keys that the new root does not take from the old root.
        drop_next: keys that the new root does not take from ``next``.
    """

    def __init__(self, *, drop_root: list[Key], drop_next: list[Key]) -> None:
        self._root = _tree(drop_root)
        self._next = _tree(drop_next)
        # Whether all keys are names at the root.
        nested = any(self._root.values()) or any(self._next.values())
        self._flat = not nested and self._next.keys() <= self._root.keys()
        #: The names that are dropped from the old root, and from ``next``; None if keys are nested.
        self.flat_names = (frozenset(self._root), frozenset(self._next)) if self._flat else None
        # The names in the data of the last step, and which are kept: the next step mostly has the same names.
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._kept: tuple[str, ...] = ()
        self._left: tuple[str, ...] = ()

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a new TensorDict: the entries of ``next``, and the entries of the root that ``next`` lacks."""
        if type(tensordict) is TensorDict:
            following = entries(tensordict).get("next")
            if self._flat and type(following) is TensorDict:
                level = self._flat_level(entries(tensordict), entries(following))
                if level is not None:
                    return build_alike(level, tensordict)
        else:
            following = tensordict.get("next", None)
        if following is None:
            raise KeyError(
                "step_mdp: there is no 'next' entry in the data; call env.step(td) first. "
                f"Found {sorted(map(str, tensordict.keys()))}."
            )
        root: TensorDictBase = self._level(tensordict, following, self._root, self._next, top=True)
        return root

    def _flat_level(self, root: dict[str, Any], following: dict[str, Any]) -> dict[str, Any] | None:
        """Make the next root of flat data, 5 times faster than in general; return None for nested data."""
        names = tuple(root), tuple(following)
        if names != self._names:
            self._names, self._kept, self._left = names, *self._choose(*names)
        level = following.copy()
        for name in self._left:
            del level[name]
        for name in self._kept:
            level[name] = root[name]
        return level if _LEAVES.issuperset(map(type, level.values())) else None

    def _choose(self, root: tuple[str, ...], following: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return which names of the root are kept, and which names of ``next`` are dropped."""
        gone = {"next", *self._root, *following}
        return tuple(name for name in root if name not in gone), tuple(name for name in following if name in self._next)

    def _level(self, root: Any, following: Any, drop_root: _Tree, drop_next: _Tree, *, top: bool = False) -> Any:
        if type(following) is not TensorDict or (root is not None and type(root) is not TensorDict):
            return self._any_class(root, following, drop_root, drop_next, top=top)
        old, fresh = entries(root) if root is not None else {}, entries(following)
        out: dict[str, Any] = {}
        for name, value in old.items():
            if top and name == "next":
                continue
            dropped = drop_root.get(name)
            # isinstance takes four times as long as type(), and nearly all values are tensors.
            if type(value) is Tensor or not _is_group(value):
                if dropped is None:
                    out[name] = value
            elif name in fresh and _is_group(fresh[name]) and drop_next.get(name) != {}:
                continue  # the two groups are merged below
            elif dropped is None or dropped:
                # The group is copied, because a policy may write into the new root, and the old root must not change.
                kept = value.exclude(*_leaves(dropped)) if dropped else value.copy()
                if not kept.is_empty():
                    out[name] = kept
        for name, value in fresh.items():
            dropped = drop_next.get(name)
            if dropped is not None and not dropped:
                continue
            if type(value) is not Tensor and _is_group(value):
                value = self._level(old.get(name), value, drop_root.get(name) or {}, dropped or {})
                if not _begins_with_tensor(value) and value.is_empty():
                    out.pop(name, None)
                    continue
            out[name] = value
        batch_size = root.batch_size if root is not None else following.batch_size
        result = build_td(out, batch_size, root.device if root is not None else following.device)
        return result if root is None else copy_names(root, result)

    def _any_class(self, root: Any, following: Any, drop_root: _Tree, drop_next: _Tree, *, top: bool) -> Any:
        """Do the same for lazy stacks, row by row, and for tensorclasses, through their own methods."""
        stack = following if isinstance(following, LazyStackedTensorDict) else root
        if isinstance(stack, LazyStackedTensorDict) and not is_non_tensor(stack):
            dim = stack.stack_dim
            befores = root.unbind(dim) if root is not None else [None] * len(stack.tensordicts)
            if len(befores) == following.shape[dim]:
                rows = zip(befores, following.unbind(dim), strict=True)
                return lazy_stack([self._level(*row, drop_root, drop_next, top=top) for row in rows], dim)
        taken = following.exclude(*_leaves(drop_next)) if drop_next else following.copy()
        if root is None:
            return taken
        drop = [*_leaves(drop_root), "next"] if top else _leaves(drop_root)
        kept = root.exclude(*drop) if drop else root.copy()
        return _without_empty_groups(kept.update(taken))


def _begins_with_tensor(group: object) -> bool:
    return type(group) is TensorDict and type(next(iter(entries(group).values()), None)) is Tensor


def _without_empty_groups(data: Any) -> Any:
    """Remove groups that have no entry, in place, from each row of a lazy stack."""
    if isinstance(data, LazyStackedTensorDict):
        for row in data.unbind(data.stack_dim):
            _without_empty_groups(row)
    elif isinstance(data, TensorDictBase):
        for name, value in list(data.items()):
            if isinstance(value, TensorDictBase) and _without_empty_groups(value).is_empty():
                del data[name]
    return data


def put_next(tensordict: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
    """Write ``following`` under ``"next"``, keep the other entries there, and return ``tensordict``."""
    if type(tensordict) is TensorDict:
        level, size, device, locked = parts_of(tensordict)
        before = level.get("next")
        if before is None and not locked and following.batch_size == size and following.device == device:
            level["next"] = following
            return tensordict
    else:
        before = tensordict.get("next", None)
    if before is not None:
        following = before.copy().update(following)
    return tensordict.set("next", following)


def written_by_policy(tensordict: TensorDictBase, keys: Iterable[Any]) -> TensorDictBase | None:
    """Select the entries that a policy has written under ``next`` for states that an environment passes through.

    Args:
        tensordict: data ``[*B]`` that is to be stepped.
        keys: ``env.passed_through_keys``.

    Returns:
        The part of ``next`` with these keys, or None if there is none.
    """
    following: TensorDictBase | None = tensordict.get("next", None)
    if following is None or not keys:
        return None
    written: TensorDictBase = following.select(*keys, strict=False)
    return None if written.is_empty() else written


def _is_group(value: object) -> bool:
    """Return whether a value has entries that a later step may replace: a TensorDict or tensorclass, but not text."""
    return (isinstance(value, TensorDictBase) or is_tensorclass(value)) and not is_non_tensor(value)


def _tree(keys: list[Key]) -> _Tree:
    """Nest keys: ``["a", ("b", "c")]`` gives ``{"a": {}, "b": {"c": {}}}``; an empty dict means the whole entry."""
    tree: _Tree = {}
    for key in keys:
        level = tree
        names = as_path(key)
        for name in names[:-1]:
            level = level.setdefault(name, {})
        level.setdefault(names[-1], {})
    return tree


def _leaves(tree: _Tree, prefix: tuple[str, ...] = ()) -> list[Key]:
    keys: list[Key] = []
    for name, below in tree.items():
        path = (*prefix, name)
        keys += _leaves(below, path) if below else [path if len(path) > 1 else name]
    return keys


def step_mdp(
    tensordict: TensorDictBase,
    next_tensordict: TensorDictBase | None = None,
    keep_other: bool = True,
    exclude_reward: bool = True,
    exclude_done: bool = False,
    exclude_action: bool = True,
    reward_keys: Key | Sequence[Key] = "reward",
    done_keys: Key | Sequence[Key] = ("done", "terminated", "truncated"),
    action_keys: Key | Sequence[Key] = "action",
) -> TensorDictBase:
    """Move the data of one step to the root of the following step.

    Args:
        tensordict: data with a ``"next"`` entry, any batch size.
        next_tensordict: where to write the result instead of a new TensorDict.
        keep_other: keep the entries of the root that ``next`` does not replace.
        exclude_reward: drop the reward; otherwise it moves from ``next`` to the root.
        exclude_done: drop the done entries.
        exclude_action: drop the action of the root.
        reward_keys: one key or a list of keys.
        done_keys: one key or a list of keys.
        action_keys: one key or a list of keys.

    Returns:
        A new TensorDict that shares its tensors with ``tensordict``, or ``next_tensordict`` updated.

    Raises:
        KeyError: there is no ``"next"`` entry.
    """
    rewards, dones, actions = _as_keys(reward_keys), _as_keys(done_keys), _as_keys(action_keys)
    drop_next = (rewards if exclude_reward else []) + (dones if exclude_done else [])
    drop_root = rewards + dones + (actions if exclude_action else [])
    source = tensordict if keep_other else tensordict.select("next", strict=False)
    result = StepPlan(drop_root=drop_root, drop_next=drop_next)(source)
    if not exclude_action and not keep_other:
        for key in actions:
            value = tensordict.get(key, None)
            if value is not None:
                result.set(key, value)
    if next_tensordict is not None:
        return next_tensordict.update(result)
    return result


def _as_keys(keys: Key | Sequence[Key]) -> list[Key]:
    """Return a list of keys. A tuple is one nested key, except a tuple of the three done names."""
    if isinstance(keys, str):
        return [keys]
    if isinstance(keys, tuple) and set(keys) != {"done", "terminated", "truncated"}:
        return [keys]
    return list(keys)


class FlatRoots:
    """Put ``next`` into data without nested entries, and make the next root, in half the time.

    A step of a cheap environment takes less time than the TensorDicts around it. So what depends on the specs alone is
    worked out once, here. :class:`StepPlan` and :func:`put_next` do the same for all data.

    Args:
        plan: which entries of the root and of ``next`` are dropped.
        names: the entries of ``next``.
        batch_size: the batch size of the data.
        device: the device of the data.
    """

    def __init__(self, plan: StepPlan, names: list[str], batch_size: torch.Size, device: torch.device | None) -> None:
        assert plan.flat_names is not None
        drop_root, drop_next = plan.flat_names
        self._taken = [name for name in names if name not in drop_next]
        self._dropped = {"next", *names, *drop_root}
        self._size, self._device = batch_size, device
        # The names in the root of the last step, and which of them the next root keeps.
        self._names: tuple[str, ...] = ()
        self._kept: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, plan: StepPlan, names: list[Key], batch_size: torch.Size, device: torch.device | None
    ) -> FlatRoots | None:
        """Return the instance for these entries of ``next``; None if an entry is nested."""
        flat = [name for name in names if isinstance(name, str)]
        return None if plan.flat_names is None or len(flat) < len(names) else cls(plan, flat, batch_size, device)

    def level_of(self, tensordict: TensorDictBase) -> dict[str, Any] | None:
        """Return the entries of the root of a step; None if an entry is nested, or if there is a ``next`` already."""
        if type(tensordict) is not TensorDict:
            return None
        level, size, device, locked = parts_of(tensordict)
        if locked or size != self._size or device != self._device:
            return None
        if "next" in level or "_step" in level:
            return None
        names = tuple(level)
        if names != self._names:
            self._names, self._kept = names, tuple(name for name in names if name not in self._dropped)
        # Groups of entries must be copied for the next root, which this class does not do.
        return level if _LEAVES.issuperset([type(level[name]) for name in self._kept]) else None

    def put(
        self,
        tensordict: TensorDict,
        level: dict[str, Any],
        following: dict[str, Any],
        fresh: dict[Any, torch.Tensor] | None,
    ) -> TensorDict:
        """Write ``next`` into the data of a step, and return the next root.

        Args:
            tensordict: the data of the step.
            level: its entries, from :meth:`level_of`.
            following: the entries of ``next``, which is built of this dict.
            fresh: entries of the next root, from :func:`begun`, if some rows begin a new episode.
        """
        root = {name: following[name] for name in self._taken}
        for name in self._kept:
            root[name] = level[name]
        if fresh is not None:
            root.update(fresh)
        level["next"] = build_td(following, self._size, self._device)
        return build_alike(root, tensordict)


def begun(columns: Sequence[tuple[Any, Array, Array | None]], rows: list[int]) -> dict[Any, torch.Tensor]:
    """Return entries of the next root in which some rows begin a new episode, in memory of their own.

    Args:
        columns: key, array ``[n, *shape]`` with the first data of these rows, and array of ``next`` for the other
            rows, or None if they all are 0 there.
        rows: the rows that begin a new episode.
    """
    out = {}
    for key, first, others in columns:
        whole = np.zeros(first.shape, first.dtype) if others is None else others.copy()
        copy_rows(whole, first, rows)
        out[key] = _from_numpy(whole)
    return out


def write_begun(root: TensorDictBase, fresh: dict[Key, torch.Tensor]) -> TensorDictBase:
    """Write what :func:`begun` returned into a next root, and return the root."""
    level = entries(root) if type(root) is TensorDict and not root.is_locked else None
    for key, value in fresh.items():
        if level is not None and type(key) is str:
            level[key] = value
        else:
            root.set(key, value)
    return root
