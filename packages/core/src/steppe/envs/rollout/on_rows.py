"""Rollouts through rows: each step is copied from its rows to the memory of the result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase, is_leaf_nontensor

from steppe.envs.array.row_loop import Loop
from steppe.envs.array.row_writer import RowWriter
from steppe.envs.array.rows import Ended
from steppe.envs.data_types import Key
from steppe.envs.kept_entries import is_kept
from steppe.envs.rollout.on_tensordicts import RolloutPlan, out_of_actions
from steppe.envs.rollout.policies import Policy, note_policy, with_written
from steppe.envs.rollout.random_actions import CHUNK, RandomActions, write_actions
from steppe.errors import PolicyError
from steppe.specs import Composite
from steppe.storage import Storage, TensorDictBuilder, build_td, entries
from steppe.workers import InUse, exclusive

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["rollout_on_rows"]

#: Actions of some steps by key, ``[T, *B, *shape]``.
_Block: TypeAlias = "dict[Key, torch.Tensor]"

_FIRST = 256
#: Roots are filled from ``next`` after this many bytes of observations, which are then still in the cache.
_NEAR = 256 * 1024


def rollout_on_rows(env: EnvBase, writer: RowWriter, plan: RolloutPlan) -> TensorDictBase:
    """Write up to ``max_steps`` steps into a new storage, and return it uncopied."""
    rollout = _Rollout(env, writer, plan)
    if plan.policy is None:
        rollout.with_blocks(_given_blocks(env, writer, plan) if plan.actions is not None else _random_blocks(env))
    else:
        rollout.with_policy(plan.policy)
    env.base_state.idle_loop = rollout.loop
    return rollout.result()


def _idle_loop(env: EnvBase, writer: RowWriter) -> Loop:
    """Return a loop on rows of its own: the one of the last rollout, unless the row writer has changed.

    Binding a chain of transforms to new rows takes as long as many steps.
    """
    state = env.base_state
    # A rollout that raised an error, or is still running, has not put its loop back.
    loop, state.idle_loop = state.idle_loop, None
    return loop if loop is not None and loop.writer is writer else Loop(writer, writer.new_rows())


def _random_blocks(env: EnvBase) -> Iterator[_Block]:
    actions = RandomActions(env)
    while True:
        yield actions.take(CHUNK)


def _given_blocks(env: EnvBase, writer: RowWriter, plan: RolloutPlan) -> Iterator[_Block]:
    """Gather ``actions=`` into blocks, each of which is checked once."""
    assert plan.actions is not None
    remaining = plan.max_steps
    while True:
        entries_ = list(itertools.islice(plan.actions, min(CHUNK, remaining)))
        if not entries_:
            raise out_of_actions()
        remaining -= len(entries_)
        if isinstance(entries_[0], TensorDictBase):
            columns = {key: [entry.get(key, None) for entry in entries_] for key in writer.layout.action_keys}
        else:
            columns = {env.action_key: entries_}
        first = plan.max_steps - remaining - len(entries_)
        yield writer.layout.actions.fit_steps(columns, env.batch_size, first=first)


class _Rollout:
    def __init__(self, env: EnvBase, writer: RowWriter, plan: RolloutPlan) -> None:
        self.writer, self.layout, self.plan = writer, writer.layout, plan
        self.in_use = writer.in_use or InUse(type(env).__name__)
        self.size = env.batch_size
        # Index of the caller's data in arrays of rows (all rows of a batch, or row 0), and the time dimension.
        self.part: Any = (...,) if self.size else (0, ...)
        self.dim = len(self.size)
        # A rollout that may end early starts small and grows, so that max_steps may be generous.
        self.stop_at_done = plan.break_any or plan.break_all
        self.capacity = min(plan.max_steps, _FIRST) if self.stop_at_done else plan.max_steps
        self.loop = _idle_loop(env, writer)
        self.rows = self.loop.rows
        self.observed: list[Key] = [key for key, _, _ in self.layout.observations]
        #: The observations that the result holds.
        self.kept = [key for key in self.observed if is_kept(key, plan.declared)]
        # Entries of a root that come from the step before. Done entries are among them only if they may be True in a
        # root; otherwise a row that is done is reset, and its root is not done.
        self.moved = [*self.kept, *(self.layout.done_keys if self.layout.flags_every_step else ())]
        self.root_spec, self.next_spec = (
            spec.exclude(*(key for key in self.observed if key not in self.kept))
            for spec in (self.layout.root_spec, self.layout.next_spec)
        )
        self.root = _Steps(self.root_spec, self.size, self.capacity, self.kept)
        self.next = _Steps(self.next_spec, self.size, self.capacity, self.kept)
        self.columns: dict[Key, list[torch.Tensor]] = {}
        self.action_blocks: list[_Block] = []
        self.steps = 0
        # Roots up to this one are written.
        self.filled = 1
        row = sum(self.rows.root[key].nbytes for key in self.observed)
        self.stretch = max(1, min(CHUNK, _NEAR // max(row, 1)))
        self._write_start()
        self._bind()

    def _write_start(self) -> None:
        start = self.plan.start
        assert start is not None
        for key, row in self.rows.root.items():
            if key in self.layout.action_keys:
                row[...] = 0
                continue
            value = start.get(key, None)
            if value is None and key in self.layout.carried:
                raise KeyError(
                    f"There is no {key!r} in the data to start from, which each step reads. Start from what reset, "
                    f"step_mdp or step_and_maybe_reset returned. Found {sorted(map(str, start.keys(True, True)))}."
                )
            row[self.part] = 0 if value is None else value.detach().numpy()
            if key in self.root.arrays:
                self.root.arrays[key][0] = row[self.part]

    def _bind(self) -> None:
        arrays, rows, part = self.next.arrays, self.rows, self.part
        self.copies = [(arrays[key], rows.next[key][part]) for key, _, _ in self.layout.written if key in arrays]
        self.root_copies = [(self.root.arrays[key], rows.root[key][part], rows.next[key][part]) for key in self.moved]
        self.done_copies = [(arrays[name], following[part]) for name, (_, following) in rows.done.items()]
        if self.layout.flags_every_step:
            self.copies += self.done_copies

    def _grow(self) -> None:
        capacity = min(self.capacity * 2, self.plan.max_steps)
        for name, spec in (("root", self.root_spec), ("next", self.next_spec)):
            old = getattr(self, name)
            new = _Steps(spec, self.size, capacity, self.kept)
            for key, array in old.arrays.items():
                new.arrays[key][: self.capacity] = array
            setattr(self, name, new)
        self.capacity = capacity
        self._bind()

    def _ended(self, t: int, ended: Ended) -> bool:
        """Write the done entries of step ``t``, and the root of the next one; True if the rollout stops."""
        for array, flag in self.done_copies:
            array[t] = flag
        if self.stop_at_done or t + 1 == self.plan.max_steps:
            return True
        self._fill_roots(t + 1)
        self.filled = t + 2
        if not self.size:
            self.loop.reset((0,))
            for array, row, _ in self.root_copies:
                array[t + 1] = row
            return False
        began = [row for row, _, _ in ended]
        for array, start, following in self.root_copies:
            array[t + 1] = following
            array[t + 1][began] = start[began]
        return False

    def _step_of(self, t: int) -> Callable[[Any], Ended]:
        """Return the function of step ``t``.

        A batch resets its ended rows in the same call, unless the rollout stops there. A single environment is reset
        by :meth:`_ended`: episodes end seldom, and the call would cost each step 0.4 us.
        """
        stops = self.stop_at_done or t + 1 == self.plan.max_steps
        return self.loop.step if stops or not self.size else self.loop.step_and_reset

    def _fill_roots(self, end: int) -> None:
        """Write the roots before ``end`` that a reset did not: each is the ``next`` of the step before."""
        start = self.filled
        if end > start:
            for key in self.moved:
                self.root.arrays[key][start:end] = self.next.arrays[key][start - 1 : end - 1]
            self.filled = end

    @exclusive("rollout")
    def with_blocks(self, blocks: Iterator[_Block]) -> None:
        """Step with actions that are known in advance, a block at a time."""
        limit = self.plan.max_steps
        step, carry = self._step_of(0), self.loop.carry if self.layout.carried else None
        batched, decode = bool(self.size), self.writer.decode
        t = 0
        running = True
        while running and t < limit:
            block = next(blocks)
            self.action_blocks.append(block)
            arrays = {key: value.numpy() for key, value in block.items()}
            n_steps = len(next(iter(arrays.values())))
            # A batch decodes actions in each step, one environment those of all steps of a block at once.
            natives = range(n_steps) if batched else decode(arrays)
            read = (
                [(self.rows.root[key][self.part], arrays[key], t) for key in arrays] if self.layout.reads_root else []
            )
            if t + n_steps > self.capacity and self.capacity < limit:
                self._grow()
            copies, stretch = self.copies, self.stretch
            todo = natives[: limit - t]
            for first in range(0, len(todo), stretch):
                for action in todo[first : first + stretch]:
                    for row, given, first_of_block in read:
                        row[...] = given[t - first_of_block]
                    if t + 1 == limit:
                        step = self._step_of(t)
                    if batched:
                        ended: Ended = step(decode({key: array[action] for key, array in arrays.items()}))
                    else:
                        ended = step((action,))
                    for array, written in copies:
                        array[t] = written
                    t += 1
                    if carry is not None:
                        carry([row for row, _, _ in ended] if ended else ())
                    if ended and self._ended(t - 1, ended):
                        running = False
                        break
                self._fill_roots(t)
                if not running:
                    break
        self.steps = t

    @exclusive("rollout")
    def with_policy(self, policy: Policy) -> None:
        """Step with a policy, which gets a TensorDict of views of the result as the root."""
        plan, layout, loop = self.plan, self.layout, self.loop
        device, root_spec = layout.device, self.root_spec
        read = [key for key in layout.carried if key in self.root.tensors]
        rows_of, decode, carry = self.layout.actions.rows_of, self.writer.decode, loop.carry
        builder = TensorDictBuilder(root_spec, self.size, device=device)
        size, part = self.size, self.part
        flat = not any(isinstance(child, Composite) for child in root_spec.values())
        t = 0
        carried: dict[Any, Any] = {}
        while True:
            rows = {key: torch.from_numpy(array[t, ...]) for key, array in self.root.arrays.items()}
            root: TensorDictBase = build_td(dict(rows), size, device) if flat else builder(rows)
            for key, value in carried.items():
                root.set(key, value)
            try:
                root = with_written(root, policy(root))
            except Exception as error:
                note_policy(error, policy, root)
                raise
            actions = rows_of(root, size)
            natives = decode(actions)
            for key in read:
                self.rows.root[key][part] = root.get(key).detach().numpy()
            for key in layout.action_keys if layout.reads_root else ():
                self.rows.root[key][...] = actions[key]
            self._keep(root, rows)
            carried = self._carried(root, rows)
            ended = self._step_of(t)(natives)
            for array, row in self.copies:
                array[t] = row
            t += 1
            self.steps = t
            carry([row for row, _, _ in ended] if ended else ())
            if ended and self._ended(t - 1, ended):
                break
            if t == plan.max_steps:
                break
            if t == self.capacity:
                self._grow()
            if not ended:
                for key in self.moved:
                    self.root.arrays[key][t] = self.next.arrays[key][t - 1]

    @staticmethod
    def _carried(root: TensorDictBase, rows: dict[Key, torch.Tensor]) -> dict[Any, Any]:
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
        if self.action_blocks:
            columns = {}
            for key in self.layout.action_keys:
                blocks = [block[key] for block in self.action_blocks]
                # numpy, because torch would start threads, which take time from environments that are still running.
                joined = np.concatenate([block.numpy() for block in blocks]) if len(blocks) > 1 else None
                actions = (blocks[0] if joined is None else torch.from_numpy(joined))[:steps]
                columns[key] = actions.movedim(0, self.dim).contiguous() if self.size else actions
            spec = self.layout.actions.spec
            write_actions(root, TensorDictBuilder(spec, (*self.size, steps), device=device)(columns), spec)
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
