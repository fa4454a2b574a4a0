"""Rollouts through rows: each step is copied from its rows to the memory of the result."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_leaf_nontensor

from steppe.envs.array.row_loop import Loop
from steppe.envs.array.row_writer import RowWriter
from steppe.envs.data_types import Key
from steppe.envs.kept_entries import is_kept
from steppe.envs.rollout.on_tensordicts import RolloutPlan, out_of_actions
from steppe.envs.rollout.policies import Policy, note_policy, with_written
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
    rollout = _Rollout(env, writer, plan)
    if plan.policy is not None:
        rollout.with_policy(plan.policy)
    else:
        rollout.with_actions(RandomActions(env).take if plan.actions is None else _given_actions(env, writer, plan))
    env.base_state.cached_loop = rollout.loop
    return rollout.result()


def _cached_loop(env: EnvBase, writer: RowWriter) -> Loop:
    """Return a loop on rows of its own: the one of the last rollout, unless the row writer has changed.

    Binding a chain of transforms to new rows takes as long as many steps.
    """
    state = env.base_state
    # A rollout that raised an error, or is still running, has not put its loop back.
    loop, state.cached_loop = state.cached_loop, None
    return loop if loop is not None and loop.writer is writer else Loop(writer, writer.new_rows())


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
    def __init__(self, env: EnvBase, writer: RowWriter, plan: RolloutPlan) -> None:
        super().__init__(_cached_loop(env, writer), env.batch_size, type(env).__name__)
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
        self.columns: dict[Key, list[torch.Tensor]] = {}
        self.steps = 0
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
        self.steps, _ = self.with_blocks(take, 0, self.plan.max_steps, until_done=self.until_done)

    @exclusive("rollout")
    def with_policy(self, policy: Policy) -> None:
        """Step with a policy, which gets a TensorDict of views of the result as the root."""
        plan, layout, loop = self.plan, self.layout, self.loop
        device, root_spec = layout.device, self.root_spec
        read = [key for key in layout.root_inputs if key in self.root.tensors]
        rows_of, decode, copy_root_inputs = self.layout.actions.rows_of, self.writer.decode, loop.copy_root_inputs
        builder = TensorDictBuilder(root_spec, self.size, device=device)
        size, part = self.size, self.part
        flat = not any(isinstance(child, Composite) for child in root_spec.values())
        t = 0
        kept: dict[Any, Any] = {}
        while True:
            rows = {key: torch.from_numpy(array[t, ...]) for key, array in self.root.arrays.items()}
            root: TensorDictBase = build_td(dict(rows), size, device) if flat else builder(rows)
            for key, value in kept.items():
                root.set(key, value)
            try:
                root = with_written(root, policy(root))
            except Exception as error:
                note_policy(error, policy, root)
                raise
            decoded = decode(rows_of(root, size))
            for key in read:
                self.rows.root[key][part] = root.get(key).detach().numpy()
            self._keep(root, rows)
            kept = self._kept_for_next_root(root, rows)
            last = self.until_done or t + 1 == plan.max_steps
            ended = (loop.step if last or not size else loop.step_and_reset)(decoded)
            for array, row in self.copies:
                array[t] = row
            t += 1
            self.steps = t
            copy_root_inputs([row for row, _, _ in ended] if ended else ())
            if ended:
                self.write_end(t - 1, ended)
            if t == plan.max_steps or (ended and self.until_done):
                break
            if t == self.capacity:
                self.grow()
            if ended:
                self.begin_episodes(t, ended, plan.max_steps)
            else:
                self.fill_roots(t + 1)

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

    def _keep(self, root: TensorDictBase, rows: dict[Key, torch.Tensor]) -> None:
        """Keep the entries that the policy has written; they are stacked at the end, with their gradients."""
        source: Any = entries(root) if type(root) is _TD else root
        for key, value in source.items():
            if key in rows:
                self._keep_own(key, value, rows)
            elif isinstance(value, TensorDictBase):
                for path, leaf in _leaves(key, value):
                    if path in rows:
                        self._keep_own(path, leaf, rows)
                    elif is_kept(path, self.plan.declared):
                        self.columns.setdefault(path, []).append(leaf)
            elif key[0] != "_" or is_kept(key, self.plan.declared):
                self.columns.setdefault(key, []).append(value)

    def _keep_own(self, key: Key, value: torch.Tensor, rows: dict[Key, torch.Tensor]) -> None:
        """Keep an entry of the environment if the policy has replaced its tensor; otherwise it is in storage."""
        column = self.columns.get(key)
        if column is not None:
            column.append(value)
        elif value is not rows[key]:
            self.columns[key] = [*self.root.tensors[key][: self.steps].unbind(0), value]

    def result(self) -> TensorDictBase:
        """Return all steps as one TensorDict ``[*B, T]``."""
        steps = self.steps
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
