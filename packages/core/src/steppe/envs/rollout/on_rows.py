"""Rollouts through rows: each step is copied from its rows to the memory of the result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_leaf_nontensor

from steppe.envs.array.row_writer import RowWriter
from steppe.envs.array.rows import Ended
from steppe.envs.data_types import Key
from steppe.envs.kept_entries import is_kept
from steppe.envs.rollout.on_tensordicts import RolloutPlan, actor, out_of_actions
from steppe.envs.rollout.policies import Policy
from steppe.envs.rollout.random_actions import RandomActions
from steppe.envs.rollout.row_frames import RowFrames, TakeActions
from steppe.errors import PolicyError
from steppe.specs import Composite, union
from steppe.storage import Storage, TensorDictBuilder, build_td, entries
from steppe.workers import exclusive

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["rollout_on_rows"]

_FIRST = 256


def rollout_on_rows(env: EnvBase, writer: RowWriter, plan: RolloutPlan) -> TensorDictBase:
    """Write up to ``max_steps`` steps into a new storage, and return it uncopied."""
    rollout = _Rollout(env, plan)
    if plan.policy is not None:
        rollout.run_policy(actor(env, plan))
    else:
        rollout.with_actions(RandomActions(env).take if plan.actions is None else _given_actions(env, writer, plan))
    return rollout.result()


def _given_actions(env: EnvBase, writer: RowWriter, plan: RolloutPlan) -> TakeActions:
    """Return a function that gathers ``actions=`` into blocks, each of which is checked once."""
    actions = plan.actions
    assert actions is not None
    taken = 0

    def take(at_most: int) -> dict[Key, torch.Tensor]:
        nonlocal taken
        entries_ = list(itertools.islice(actions, at_most))
        if not entries_:
            raise out_of_actions()
        if isinstance(entries_[0], TensorDictBase):
            columns = {key: [entry.get(key, None) for entry in entries_] for key in writer.layout.action_keys}
        else:
            columns = {env.action_key: entries_}
        first, taken = taken, taken + len(entries_)
        return writer.layout.actions.fit_steps(columns, env.batch_size, first=first)

    return take


class _Rollout(RowFrames):
    def __init__(self, env: EnvBase, plan: RolloutPlan) -> None:
        super().__init__(env.row_run_steps, type(env).__name__)
        self.plan = plan
        self.dim = len(self.size)
        # A rollout that may end early starts small and grows, so that max_steps may be generous.
        self.until_done = plan.break_any or plan.break_all
        self.capacity = min(plan.max_steps, _FIRST) if self.until_done else plan.max_steps
        #: The observations that the result holds.
        self.kept = [key for key in self.observed if is_kept(key, plan.declared)]
        private = [key for key in self.observed if key not in self.kept]
        self.root_spec = self.layout.root_spec.exclude(*private)
        if plan.policy is None:
            self.root_spec = union(self.root_spec, self.layout.actions.spec)
        self.next_spec = self.layout.next_spec.exclude(*private)
        #: Entries that each step reads of its root, and that the result does not hold: their arrays in the rows.
        read = [key for key in private if key in self.layout.read_by_all]
        self._private = [(key, self.rows.next[key][self.part]) for key in read]
        self._private_roots = [(key, self.rows.root[key][self.part]) for key in read]
        nested = any(isinstance(child, Composite) for child in self.root_spec.values())
        self._builder = TensorDictBuilder(self.root_spec, self.size, device=self.layout.device) if nested else None
        #: The entries of the environment in the root that the policy was given.
        self._views: dict[Key, torch.Tensor] = {}
        self.columns: dict[Key, list[torch.Tensor]] = {}
        self.taken = 0
        self._allocate()
        self._write_start()
        self.begin(0)

    def _allocate(self) -> None:
        self.root = _Steps(self.root_spec, self.size, self.capacity, self.kept)
        self.next = _Steps(self.next_spec, self.size, self.capacity, self.kept)
        taken = self.layout.action_keys if self.plan.policy is None else ()
        self.use(self.root.arrays, self.next.arrays, {key: self.root.arrays[key] for key in taken})

    def _write_start(self) -> None:
        start = self.plan.start
        assert start is not None
        for key, row in self.rows.root.items():
            if key in self.layout.action_keys:
                row[...] = 0
                continue
            value = start.get(key, None)
            if value is None and key in self.layout.root_inputs:
                raise KeyError(
                    f"There is no {key!r} in the data to start from, which each step reads. Start from what reset, "
                    f"step_mdp or step_and_maybe_reset returned. Found {sorted(map(str, start.keys(True, True)))}."
                )
            row[self.part] = 0 if value is None else value.detach().numpy()
            if key in self.root.arrays:
                self.root.arrays[key][0] = row[self.part]

    def grow(self) -> None:
        used, old_root, old_next = self.capacity, self.root, self.next
        self.capacity = min(used * 2, self.plan.max_steps)
        self._allocate()
        for old, new in ((old_root, self.root), (old_next, self.next)):
            for key, array in old.arrays.items():
                new.arrays[key][:used] = array

    @exclusive("rollout")
    def with_actions(self, take: TakeActions) -> None:
        """Step with actions that are known in advance."""
        self.taken, _ = self.with_blocks(take, 0, self.plan.max_steps, until_done=self.until_done)

    @exclusive("rollout")
    def run_policy(self, act: Policy) -> None:
        """Step with a policy, which gets a TensorDict of views of the result as the root."""
        first = {key: torch.from_numpy(row.copy()) for key, row in self._private_roots}
        root = self._root_at(0, first)
        self.taken, _, _ = self.with_policy(act, root, 0, self.plan.max_steps, until_done=self.until_done)

    def next_root(self, t: int, root: TensorDictBase, ended: Ended) -> TensorDictBase:
        """Return views of the memory of step ``t``, with the entries of the policy that ``step_mdp`` keeps."""
        kept = self._kept_for_next_root(root, self._views)
        if self._private:
            self.copy_root(kept, self._private, ended)
        if ended:
            self.begin_episodes(t, ended, self.plan.max_steps)
        else:
            self.fill_roots(t + 1)
        return self._root_at(t, kept)

    def _root_at(self, t: int, others: dict[Any, Any]) -> TensorDictBase:
        self._views = views = {key: torch.from_numpy(array[t, ...]) for key, array in self.root.arrays.items()}
        if self._builder is None:
            root: TensorDictBase = build_td(dict(views), self.size, self.layout.device)
        else:
            root = self._builder(views)
        for key, value in others.items():
            root.set(key, value)
        return root

    @staticmethod
    def _kept_for_next_root(root: TensorDictBase, rows: dict[Key, torch.Tensor]) -> dict[Any, Any]:
        """Return the entries of a policy that the next root keeps, as ``step_mdp`` does: those under ``next`` first."""
        kept: dict[Any, Any] = {}
        for data in (root, (entries(root) if type(root) is _TD else root).get("next")):
            if data is None:
                continue
            for key, value in (entries(data) if type(data) is _TD else data).items():
                if not isinstance(value, TensorDictBase):
                    if key not in rows:
                        kept[key] = value
                elif key != "next" or data is not root:
                    # A group may also hold entries of the environment, which are those of this step.
                    kept.update({path: leaf for path, leaf in _leaves(key, value) if path not in rows})
        return kept

    def keep_root(self, t: int, root: TensorDictBase) -> None:
        """Keep the entries that the policy has written; they are stacked at the end, with their gradients."""
        rows = self._views
        source: Any = entries(root) if type(root) is _TD else root
        for key, value in source.items():
            if key in rows:
                self._keep_own(t, key, value)
            elif isinstance(value, TensorDictBase):
                for path, leaf in _leaves(key, value):
                    if path in rows:
                        self._keep_own(t, path, leaf)
                    elif is_kept(path, self.plan.declared):
                        self.columns.setdefault(path, []).append(leaf)
            elif key[0] != "_" or is_kept(key, self.plan.declared):
                self.columns.setdefault(key, []).append(value)

    def _keep_own(self, t: int, key: Key, value: torch.Tensor) -> None:
        """Keep an entry of the environment if the policy has replaced its tensor; otherwise it is in storage."""
        column = self.columns.get(key)
        if column is not None:
            column.append(value)
        elif value is not self._views[key]:
            self.columns[key] = [*self.root.tensors[key][:t].unbind(0), value]

    def result(self) -> TensorDictBase:
        """Return all steps as one TensorDict ``[*B, T]``."""
        steps = self.taken
        whole = steps == self.capacity
        mostly_unused = steps * 2 <= self.capacity  # a slice would keep all of it alive

        def cut(column: torch.Tensor) -> torch.Tensor:
            if whole:
                return column
            used = column.narrow(self.dim, 0, steps)
            return used.clone() if mostly_unused else used

        device = self.layout.device
        root, following = (
            TensorDictBuilder(kept.storage.spec, (*self.size, steps), device=device)(
                {key: cut(tensor) for key, tensor in kept.storage.tensors.items()}
            )
            for kept in (self.root, self.next)
        )
        root.set("next", following)
        for key, column in self.columns.items():
            if len(column) != steps:
                raise PolicyError(f"The policy wrote {key!r} in {len(column)} of {steps} steps; write it in each.")
            root.set(key, torch.stack(column, self.dim))
        return root


class _Steps:
    """Memory for steps ``[*B, T]``, with views in which time comes first.

    Args:
        spec: the spec of one row.
        size: batch size of the environment.
        capacity: number of steps.
        unset: keys of entries that are written in each step, whose memory need not be filled with zeros.

    Attributes:
        arrays, tensors: views ``[T, *B, *shape]`` by key.
    """

    def __init__(self, spec: Composite, size: torch.Size, capacity: int, unset: list[Key]) -> None:
        self.storage = Storage(spec, (*size, capacity), unset=unset)
        dim = len(size)
        self.arrays, self.tensors = dict(self.storage.arrays), dict(self.storage.tensors)
        if dim:
            self.arrays = {key: np.moveaxis(array, dim, 0) for key, array in self.arrays.items()}
            self.tensors = {key: tensor.movedim(dim, 0) for key, tensor in self.tensors.items()}


_TD = type(build_td({}))


def _leaves(name: str, group: TensorDictBase) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the entries of a group at any depth, with their keys in the data that holds the group."""
    for path, leaf in group.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor):
        yield (name, *((path,) if isinstance(path, str) else path)), leaf
