"""RowFrames: steps an environment on rows, and copies each step to memory of many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase, is_leaf_nontensor

from steppe.envs.array.rows import Arrays, Ended
from steppe.envs.data_types import Array, Key
from steppe.envs.kept_entries import DeclaredKeys, is_kept
from steppe.envs.rollout.policies import Policy, with_written
from steppe.envs.rollout.random_actions import CHUNK
from steppe.envs.rollout.stacking import padding_like, stack_column
from steppe.errors import PolicyError
from steppe.specs import CPU, Composite, below_next, union
from steppe.storage import Storage, TensorDictBuilder, build_td, copy_rows, entries
from steppe.workers import InUse, exclusive

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["RowFrames", "TakeActions"]

#: Returns the actions of the next steps, ``{key: [k, *B, *shape]}`` with ``1 <= k <= at_most``.
TakeActions = Callable[[int], "dict[Key, torch.Tensor]"]

#: Roots are filled from ``next`` after this many bytes of observations, which are then still in the cache.
_NEAR = 256 * 1024

#: Steps for which a run that may end early has memory at first.
_FIRST = 256


class RowFrames:
    """Step an environment on rows, and copy each step to memory ``[*B, T]``: of a rollout, or of a batch.

    The root of a step is the ``next`` of the step before, except where an episode begins. So roots are copied from the
    frames themselves, for many steps at once. A policy gets views of the memory as its root, or copies if ``keep_in``
    has named the memory. Other memory is given away with the result, and later steps are written to new memory.

    Args:
        env: an environment for which ``no_row_frames_reason`` is None, one or a batch ``(n,)``.
        most: the largest number of steps, T.
        declared: private entries that are kept.
        take: returns the actions, if they are known in advance; None if a policy acts.
        grows: begin with memory for fewer steps, because steps may end early.

    Attributes:
        size: batch size of the environment: empty, or ``(n,)``.
        in_use: the thread that steps the environment.
        taken: how many steps have been written.
    """

    def __init__(
        self, env: EnvBase, most: int, declared: DeclaredKeys, *, take: TakeActions | None, grows: bool = False
    ) -> None:
        self.steps = steps = env.row_run_steps
        self.loop, self.rows, self.writer, self.layout = steps.loop, steps.rows, steps.writer, steps.layout
        self.size, self.part = steps.batch_size, steps.part
        self.in_use = self.writer.in_use or InUse(type(env).__name__)
        self.taken, self._most, self._declared, self._take = 0, most, declared, take
        self._dim = len(self.size)
        self._first_capacity = min(most, _FIRST) if grows else most
        layout, rows, part = self.layout, self.rows, self.part
        observed: list[Key] = [key for key, _, _ in layout.observations]
        row = sum(rows.root[key].nbytes for key in observed)
        self._stretch = max(1, min(CHUNK, _NEAR // max(row, 1)))
        #: Done entries that each step may change. Others are False in a root, because rows that ended are reset.
        changing_flags = layout.done_keys if layout.flags_every_step else ()
        self._written = [*(key for key, _, _ in layout.written), *changing_flags]
        self._moved = [*observed, *changing_flags]
        #: The observations that the result holds.
        self._kept = [key for key in observed if is_kept(key, declared)]
        private = [key for key in observed if key not in self._kept]
        root_spec = layout.root_spec.exclude(*private)
        self._root_spec = root_spec if take is None else union(root_spec, layout.actions.spec)
        self._next_spec = layout.next_spec.exclude(*private)
        self._own = set(layout.root_spec.keys(include_nested=True, leaves_only=True))
        #: Entries that each step reads of its root, and that the result does not hold: their arrays in the rows.
        read = [key for key in private if key in layout.read_by_all]
        self._private = [(key, rows.next[key][part]) for key in read]
        self._private_roots = [(key, rows.root[key][part]) for key in read]
        #: The whole root as a step leaves it in ``next`` of the rows.
        self._following = [(key, rows.next[key][part]) for key in (*observed, *layout.done_keys)]
        nested = any(isinstance(child, Composite) for child in self._root_spec.values())
        self._builder = TensorDictBuilder(self._root_spec, self.size, device=layout.device) if nested else None
        self._memory: Mapping[Key, torch.Tensor] = {}
        #: The entries of the environment in the root that the policy was given.
        self._views: dict[Key, torch.Tensor] = {}
        self._columns: dict[Key, list[Any]] = {}
        self._filled = 0  # how many roots have been written

    # -- memory -------------------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop the steps that were taken, and use other memory for later ones."""
        self.taken = 0

    def keep_in(self, memory: Mapping[Key, torch.Tensor]) -> None:
        """Use memory of the caller from now on, and move the steps taken so far into it.

        Args:
            memory: tensors ``[*B, T, *shape]`` on the host by key. Entries without one get new memory.
        """
        self._memory = memory
        if self.taken:
            self._move(self._capacity, self.taken)

    def _allocate(self, capacity: int) -> None:
        """Write frames to other memory from now on."""
        self._capacity = capacity
        self._root = _Steps(self._root_spec, self.size, capacity, self._kept, self._memory)
        next_keys: list[Key] = list(self._next_spec.keys(include_nested=True, leaves_only=True))
        below = {key: self._memory[below_next(key)] for key in next_keys if below_next(key) in self._memory}
        self._next = _Steps(self._next_spec, self.size, capacity, self._kept, below)
        rows, part, root, following = self.rows, self.part, self._root.arrays, self._next.arrays
        self._actions = {} if self._take is None else {key: root[key] for key in self.layout.action_keys}
        #: For each entry that a step writes: its array in the frames and its array in the rows.
        self._copies = [(following[key], rows.next[key][part]) for key in self._written if key in following]
        self._flags = [(following[key], rows.next[key][part]) for key in self.layout.done_keys]
        #: For each entry that a root takes over from ``next`` of the step before: its arrays in the frames (root,
        #: next) and in the rows (root, next). An entry with the key of an action, as a primer makes it, holds the
        #: action instead.
        self._roots = [
            (root[key], following[key], rows.root[key][part], rows.next[key][part])
            for key in self._moved
            if key in root and key not in self._actions
        ]
        # A policy may keep its input, so it gets copies of entries in memory that is used again.
        memory = self._memory
        self._shown = [(key, array) for key, array in root.items() if key not in memory]
        self._lent = [(key, root[key], rows.next[key][part]) for key in self._moved if key in memory and key in root]
        unset = (key for key in self.layout.done_keys if key in memory and key in root and key not in self._moved)
        self._unset = {key: _unset(root[key].shape[1:]) for key in unset}

    def _grow(self) -> None:
        self._move(min(self._capacity * 2, self._most), self._capacity)

    def _move(self, capacity: int, used: int) -> None:
        """Write frames to new memory, to which those that were taken are copied."""
        before = self._root, self._next
        self._allocate(capacity)
        for old, new in zip(before, (self._root, self._next), strict=True):
            for key, array in old.arrays.items():
                new.arrays[key][:used] = array[:used]

    # -- roots --------------------------------------------------------------------------------------------------------

    def _fill_roots(self, end: int) -> None:
        """Write the roots before step ``end`` that no reset has written: each is the ``next`` of the step before."""
        start = self._filled
        if end > start:
            for root, following, _, _ in self._roots:
                root[start:end] = following[start - 1 : end - 1]
            self._filled = end

    def _write_end(self, t: int) -> None:
        """Write the done entries of step ``t``, in which rows have ended."""
        for array, flag in self._flags:
            array[t] = flag

    def _begin_episodes(self, t: int, ended: Ended) -> None:
        """Write the root of step ``t``, in which rows that were reset begin an episode."""
        self._fill_roots(t)
        began = [row for row, _, _ in ended]
        for array, _, start, following in self._roots:
            if self.size:
                array[t] = following
                copy_rows(array[t], start, began)
            else:
                array[t] = start
        self._filled = t + 1

    def _root_at(self, t: int, others: dict[Any, Any], *, is_first: bool = False) -> TensorDictBase:
        """Return the root of step ``t``: views of memory that is given away, copies of other memory, other entries."""
        self._views = views = {}
        for key, array in self._shown:
            views[key] = torch.from_numpy(array[t, ...])
        for key, array, following in self._lent:
            views[key] = torch.from_numpy(array[t, ...].copy() if self._filled > t else following.copy())
        for key, flag in self._unset.items():
            if is_first:
                flag = torch.from_numpy(self._root.arrays[key][t, ...].copy())
            elif flag._version:  # a policy has written into it
                flag = self._unset[key] = _unset(flag.shape)
            views[key] = flag
        if self._builder is None:
            level: dict[Any, Any] = {**views}
            root: TensorDictBase = build_td(level, self.size, self.layout.device)
        else:
            root = self._builder(views)
        for key, value in others.items():
            root.set(key, value)
        return root

    def _kept_for_next_root(self, root: TensorDictBase) -> dict[Any, Any]:
        """Return the entries of others that the next root keeps, as ``step_mdp`` does: those under ``next`` first."""
        own = self._own
        kept: dict[Any, Any] = {}
        for data in (root, (entries(root) if type(root) is _TD else root).get("next")):
            if data is None:
                continue
            for key, value in (entries(data) if type(data) is _TD else data).items():
                if not isinstance(value, TensorDictBase):
                    if key not in own:
                        kept[key] = value
                elif key != "next" or data is not root:
                    # A group may also hold entries of the environment, which belong to this step.
                    kept.update({path: leaf for path, leaf in _leaves(key, value) if path not in own})
        return kept

    def _copy_root(self, level: dict[Any, Any], copied: Sequence[tuple[Key, Array]], ended: Ended) -> None:
        """Copy entries of the next root from the rows.

        Args:
            level: the entries of the next root, where the copies are put.
            copied: key and array of ``next`` in the rows.
            ended: the rows that ended, and have been reset.
        """
        if ended:
            first = self.steps.first_data(ended)
            level.update((key, first[key]) for key, _ in copied)
            return
        for key, following in copied:
            level[key] = torch.from_numpy(following.copy())

    # -- steps of a caller --------------------------------------------------------------------------------------------

    def begin(self, root: TensorDictBase) -> TensorDictBase:
        """Begin new steps after the steps that the frames already hold.

        ``run`` takes them itself. Callers that step some rows only, and choose which rows begin episodes, step with
        ``self.steps`` and ``self.loop``, and call :meth:`keep` and :meth:`next_root` after each step.

        Args:
            root: the root of the first of these steps.

        Returns:
            The same root, as the policy gets it.
        """
        t = self.taken
        if not t:
            self._columns = {}
            self._allocate(self._first_capacity)
        for key, row in self.rows.root.items():
            if key in self.layout.action_keys:
                row[...] = 0
                continue
            value = root.get(key, None)
            if value is None and key in self.layout.root_inputs:
                raise KeyError(
                    f"There is no {key!r} in the data to start from, which each step reads. Start from what reset, "
                    f"step_mdp or step_and_maybe_reset returned. Found {sorted(map(str, root.keys(True, True)))}."
                )
            row[self.part] = 0 if value is None else value.detach().numpy()
            if key in self._root.arrays:
                self._root.arrays[key][t] = row[self.part]
        self._filled = t + 1
        first = self._kept_for_next_root(root)
        first.update((key, torch.from_numpy(row.copy())) for key, row in self._private_roots)
        return self._root_at(t, first, is_first=True)

    def keep(self, ended: Ended) -> None:
        """Copy the step that the rows hold, in which some of them have ended, to the frames.

        If a row has ended, the frames are whole up to this step; otherwise roots are copied later, many at once.
        """
        t = self.taken
        for array, written in self._copies:
            array[t] = written
        if ended:
            self._write_end(t)
            self._fill_roots(t + 1)
        self.taken = t + 1

    def next_root(self, root: TensorDictBase | None, ended: Ended) -> TensorDictBase:
        """Return the root of the next step.

        Args:
            root: data with the policy's entries, of which the next root gets those that ``step_mdp`` keeps; None for no
                entries.
            ended: the rows that have begun an episode since the last step.
        """
        t = self.taken
        if t == self._capacity:
            self._grow()
        kept = {} if root is None else self._kept_for_next_root(root)
        if self._private:
            self._copy_root(kept, self._private, ended)
        if ended:
            self._begin_episodes(t, ended)
        elif self._shown or t - self._filled > self._stretch:
            self._fill_roots(t + 1)
        return self._root_at(t, kept)

    def last_root(self, root: TensorDictBase | None, ended: Ended) -> TensorDictBase:
        """Return what :meth:`next_root` does in memory of its own, after the last step."""
        self._fill_roots(self.taken)
        level = {} if root is None else self._kept_for_next_root(root)
        self._copy_root(level, self._following, ended)
        following: TensorDictBase = build_td({}, self.size, self.layout.device)
        for key, value in level.items():
            following.set(key, value)
        return following

    # -- steps --------------------------------------------------------------------------------------------------------

    @exclusive("rollout")
    def run(
        self,
        act: Policy | None,
        root: TensorDictBase,
        end: int,
        *,
        goes_on: bool = False,
        until_done: bool = False,
        stopped: Callable[[], bool] | None = None,
    ) -> TensorDictBase:
        """Take steps, after those that were taken already.

        Args:
            act: the policy; None if the actions are known in advance.
            root: the root of the first of these steps.
            end: how many steps there are then.
            goes_on: rows that end in the last step are reset too, because more steps follow later.
            until_done: end with the first step in which a row ends.
            stopped: called after each step; True ends the steps there.

        Returns:
            If ``goes_on``, the root of the step that follows, in memory of its own.
        """
        root = self.begin(root)
        if self._take is not None:
            ended = self._with_blocks(self._take, end, goes_on, until_done, stopped)
        else:
            assert act is not None
            root, ended = self._with_policy(act, root, end, goes_on, until_done, stopped)
        return self.last_root(root, ended) if goes_on else root

    def _with_policy(
        self,
        act: Policy,
        root: TensorDictBase,
        end: int,
        goes_on: bool,
        until_done: bool,
        stopped: Callable[[], bool] | None,
    ) -> tuple[TensorDictBase, Ended]:
        """Step with a policy; return the last root, and the rows that ended in its step."""
        advance, keep_root, keep, next_root = self.steps.advance, self._keep_root, self.keep, self.next_root
        while True:
            t = self.taken
            acted = act(root)
            if acted is not root:
                root = with_written(root, acted)
            ended = advance(root, reset=goes_on or not (until_done or t + 1 == end))
            keep_root(t, root)
            keep(ended)
            if t + 1 == end or (ended and until_done) or (stopped is not None and stopped()):
                self._fill_roots(t + 1)
                return root, ended
            root = next_root(root, ended)

    def _with_blocks(
        self, take: TakeActions, end: int, goes_on: bool, until_done: bool, stopped: Callable[[], bool] | None
    ) -> Ended:
        """Step with actions that are known in advance, many at a time; return the rows that ended in the last step."""
        loop, layout, decode, batched = self.loop, self.layout, self.writer.decode, bool(self.size)
        copy_root_inputs = loop.copy_root_inputs if layout.root_inputs else None
        read = [(self.rows.root[key][self.part], key) for key in layout.action_keys] if layout.reads_root else []
        step = loop.step if until_done or not batched else loop.step_and_reset
        # Steps that may be stopped take one action at a time: all actions that were drawn must be used, or the data of
        # a seed would depend on where batches stop.
        at_once = CHUNK if stopped is None else 1
        t, ended = self.taken, _NONE
        while t < end:
            block = {key: values.numpy() for key, values in take(min(at_once, end - t)).items()}
            begin, n = t, len(next(iter(block.values())))
            if t + n > self._capacity:
                self._grow()
            for key, values in block.items():
                self._actions[key][t : t + n] = values
            copies, stretch = self._copies, self._stretch
            # A batch decodes actions at each step; a single environment decodes the whole block at once.
            decoded: Sequence[Any] = range(n) if batched else decode(block)
            for start in range(0, n, stretch):
                for action in decoded[start : start + stretch]:
                    for row, key in read:
                        row[...] = block[key][t - begin]
                    if batched:
                        if t + 1 == end and not goes_on:
                            step = loop.step
                        ended = step(decode({key: values[action] for key, values in block.items()}))
                    else:
                        ended = step((action,))
                    for array, written in copies:
                        array[t] = written
                    t += 1
                    if copy_root_inputs is not None:
                        copy_root_inputs([row for row, _, _ in ended] if ended else ())
                    if ended:
                        self._write_end(t - 1)
                        if until_done:
                            self._fill_roots(t)
                            self.taken = t
                            return ended
                        if goes_on or t < end:
                            if not batched:  # episodes end seldom, and step_and_reset would cost each step 0.4 us
                                loop.reset((0,))
                            if t < end:
                                self._begin_episodes(t, ended)
                self._fill_roots(t)
            if stopped is not None and stopped():
                break
        self.taken = t
        return ended

    # -- the result ---------------------------------------------------------------------------------------------------

    def _keep_root(self, t: int, root: TensorDictBase) -> None:
        """Keep the entries that the policy has written; they are stacked at the end, with their gradients."""
        views = self._views
        source: Any = entries(root) if type(root) is _TD else root
        for key, value in source.items():
            if key in views:
                self._keep_own(t, key, value)
            elif isinstance(value, TensorDictBase):
                for path, leaf in _leaves(key, value):
                    if path in views:
                        self._keep_own(t, path, leaf)
                    elif is_kept(path, self._declared):
                        self._columns.setdefault(path, []).append(leaf)
            elif key[0] != "_" or is_kept(key, self._declared):
                self._columns.setdefault(key, []).append(value)

    def _keep_own(self, t: int, key: Key, value: torch.Tensor) -> None:
        """Keep an entry of the environment if the policy has replaced its tensor, or written into a copy."""
        column = self._columns.get(key)
        if column is not None:
            column.append(value)
        elif value is not self._views[key]:
            self._fill_roots(t)
            before = self._root.tensors[key][:t]
            # The column is stacked to the memory that is used again, so its parts must be elsewhere.
            self._columns[key] = [*(before.clone() if key in self._memory else before).unbind(0), value]
        elif key in self._memory and (value.is_inference() or value._version):
            self._fill_roots(t + 1)
            self._root.tensors[key][t] = value

    def result(self, *, whole: bool = False) -> TensorDictBase:
        """Return the steps that were taken as one TensorDict ``[*B, T]``.

        Args:
            whole: add frames of zeros up to the largest number of steps.

        Raises:
            PolicyError: the policy did not write an entry in each step, or not with the same shape.
        """
        taken, memory = self.taken, self._memory
        length = self._most if whole else taken
        mostly_unused = length * 2 <= self._capacity  # a slice would keep all of it alive

        def cut(column: torch.Tensor) -> torch.Tensor:
            if whole:
                column.narrow(self._dim, taken, length - taken).zero_()
            if length == self._capacity:
                return column
            used = column.narrow(self._dim, 0, length)
            return used.clone() if mostly_unused else used

        root, following = (
            TensorDictBuilder(spec, (*self.size, length), device=self.layout.device)(
                {key: cut(tensor) for key, tensor in steps.storage.items()}
            )
            for spec, steps in ((self._root_spec, self._root), (self._next_spec, self._next))
        )
        root.set("next", following)
        for key, column in self._columns.items():
            if len(column) != taken:
                raise PolicyError(f"The policy wrote {key!r} in {len(column)} of {taken} steps; write it in each.")
            if taken < length:
                column = [*column, *[padding_like(column[0])] * (length - taken)]
            root.set(key, stack_column(key, column, self._dim, memory.get(key)))
        return root


class _Steps:
    """Memory for steps ``[*B, T]``, with views in which time comes first.

    Args:
        spec: the spec of one row.
        size: batch size of the environment.
        capacity: number of steps.
        unset: keys of entries that are written in each step, whose memory need not be filled with zeros.
        memory: tensors ``[*B, T, *shape]`` by key that are used; other entries get new memory.

    Attributes:
        storage: tensors ``[*B, T, *shape]`` by key.
        arrays, tensors: views ``[T, *B, *shape]`` of the same memory.
    """

    def __init__(
        self, spec: Composite, size: torch.Size, capacity: int, unset: list[Key], memory: Mapping[Key, torch.Tensor]
    ) -> None:
        used = [key for key in spec.keys(include_nested=True, leaves_only=True) if key in memory]
        for key in used:
            if key not in unset:
                memory[key].zero_()
        made = Storage(spec.exclude(*used) if used else spec, (*size, capacity), unset=unset)
        self.storage: dict[Key, torch.Tensor] = {**made.tensors, **{key: memory[key] for key in used}}
        self.tensors = dict(self.storage)
        self.arrays: Arrays = {**made.arrays, **{key: memory[key].numpy() for key in used}}
        dim = len(size)
        if dim:
            self.arrays = {key: np.moveaxis(array, dim, 0) for key, array in self.arrays.items()}
            self.tensors = {key: tensor.movedim(dim, 0) for key, tensor in self.tensors.items()}


_NONE: Ended = []
_TD = type(build_td({}))


def _unset(shape: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode(False):  # so that it counts the changes of its values
        return torch.zeros(shape, dtype=torch.bool, device=CPU)


def _leaves(name: str, group: TensorDictBase) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the entries of a group at any depth, with their keys in the data that holds the group."""
    for path, leaf in group.items(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor):
        yield (name, *((path,) if isinstance(path, str) else path)), leaf
