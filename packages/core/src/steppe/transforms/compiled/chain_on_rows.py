"""TransformedWriter: the row writer of an environment or a batch with transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import BoundWriter, Ended, EnvInfos, Progress, RowLayout, Rows, RowWriter
from steppe.errors import add_note
from steppe.storage import clear_rows, copy_rows
from steppe.transforms.compiled.row_inverses import RowInverses
from steppe.transforms.compiled.row_plan import Memory, RowPlan, Value, shared
from steppe.transforms.compiled.stages import Stage, make_stage, row_by_row
from steppe.transforms.compiled.transform_hooks import Array, InnerWriter
from steppe.transforms.transform_keys import DONE_NAMES, Key

__all__ = ["TransformedWriter"]


class TransformedWriter(RowWriter):
    """Write rows of transformed data.

    A transform runs once for all rows if its ``Transform.shared_key`` is the same in all environments, otherwise
    row by row.

    Args:
        base: writer of the rows before the transforms.
        plans: the chain of each environment, or a single one that serves all rows. They have the same specs.
    """

    def __init__(self, base: RowWriter, plans: Sequence[RowPlan]) -> None:
        self.base, self.plans = base, list(plans)
        self.n = base.n
        # The settings of the chains may differ: done entries are written if one of them may end a row.
        layouts = [plan.layout for plan in plans]
        self.layout: RowLayout = next((layout for layout in layouts if layout.flags_every_step), layouts[0])
        self._inverses = RowInverses(plans[0], base.layout.actions)
        self.inverts, self.in_use = base.inverts or bool(self._inverses), base.in_use
        if not self._inverses:
            self.decode = base.decode  # type: ignore[method-assign]  # each step of a batch decodes its actions
        #: Inverts and decodes the only action of the only row, an array; None if there are several.
        self._of_one = self._inverses.decoder_of_one(base) if self._inverses and self.n == 1 else None
        # A base that reads the whole root would need the caller's root without what these transforms change in it.
        on_arrays = base.on_arrays and not base.layout.reads_root and all(plan.copies_to_next for plan in plans)
        self.on_arrays = on_arrays and all(
            hook.rows is not None or hook.does_nothing or hook.only_inverts for plan in plans for hook in plan.hooks
        )
        if any(plan.reads_root_before(i) for plan in plans for i in plan.repeating):
            self.on_arrays = False  # repeated steps do not begin at the root of the caller
        self._base_arrays = {} if base.own_rows is None else self._arrays_of_base(base.own_rows)

    def _arrays_of_base(self, rows: Rows) -> dict[tuple[Value, bool], Array]:
        """Return the arrays of the values of a base that writes its own rows; new ones for overwritten values."""
        plan = self.plans[0]
        base_arrays: dict[tuple[Value, bool], Array] = {}
        over = plan.written_over
        for key, value in plan.values[0].items():
            for at_root, arrays in ((True, rows.root), (False, rows.next)):
                if value.in_root or not at_root:
                    array = arrays[key]
                    base_arrays[value.place, at_root] = np.zeros_like(array) if value in over else array
        return base_arrays

    def decode(self, actions: dict[Key, Array]) -> Any:
        """Turn actions of the caller into library actions: the inverses, last transform first, then the base."""
        # A single action needs no blocks and stacks of one row.
        if self._of_one is not None and len(rows := actions[self.layout.action_keys[0]]) == 1:
            return [self._of_one(rows[0, ...].copy())]
        return self.base.decode(self._inverses.of_rows(actions))

    def fast_decoder(self, batch_size: torch.Size) -> Callable[[torch.Tensor], Any] | None:
        """Return the base's fast decoder. If transforms change actions, only a single row has one."""
        if not self._inverses:
            return self.base.fast_decoder(batch_size)
        if batch_size or self._of_one is None:
            return None
        return self.layout.actions.fast_decoder_with(self._of_one)

    def fill_root(self, key: Key) -> bool:
        """Write an entry of the base, from memory of the base."""
        values = self.plans[0].values
        value = values[-1].get(key)
        base_key = next((key for key, of_base in values[0].items() if of_base is value), None)
        return base_key is not None and self.base.fill_root(base_key)

    def new_rows(self) -> Rows:
        """Return new rows; their entries are in the memory of the base if it writes its own rows."""
        rows = Rows.new(self.layout, self.n)
        if not self._base_arrays:
            return rows
        memory, final = Memory(rows, self._base_arrays), self.plans[0].values[-1]
        inputs = {key: rows.root[key] for key in self.layout.action_keys if key in rows.root}
        root = {key: memory.root(value) for key, value in final.items() if value.in_root}
        return Rows(self.layout, {**root, **inputs}, {key: memory.next(value) for key, value in final.items()})

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Return a writer of these rows."""
        memory = Memory(rows, self._base_arrays)
        base_rows, own = self._base_rows(memory), self.base.own_rows
        first = self.base.bind(base_rows if own is None else own, progress)
        over = self.plans[0].written_over
        if own is not None and over:
            keys = [key for key, value in self.plans[0].values[0].items() if value in over]
            first = _CopiedBase(first, own, base_rows, keys)
        return _Chains(self.plans, memory, base_rows, progress).around(first)

    def _base_rows(self, memory: Memory) -> Rows:
        """Return the rows that the base writes, of the arrays of a memory."""
        rows, layout, values = memory.rows, self.base.layout, self.plans[0].values[0]
        return Rows(
            layout,
            {
                **{key: rows.root[key] for key in layout.root_keys if key in rows.layout.action_keys},
                **{key: memory.root(value) for key, value in values.items() if value.in_root},
            },
            {key: memory.next(value) for key, value in values.items()},
        )


class _Chains:
    """The chains of transforms of some rows, bound to their memory.

    Args:
        plans: the chain of each row, or a single one that serves all rows.
        memory: the arrays of the values.
        base_rows: the rows that the writer before the transforms writes.
        progress: notes the row at work.
    """

    def __init__(self, plans: Sequence[RowPlan], memory: Memory, base_rows: Rows, progress: Progress) -> None:
        self.plans, self.plan, self.memory = plans, plans[0], memory
        self.rows, self.base_rows, self.progress = memory.rows, base_rows, progress

    def around(self, base: BoundWriter) -> BoundWriter:
        """Return a bound writer with the transforms around another one."""
        first, bound = 0, base
        for i, hooks in enumerate(self.plan.hooks):
            hook = hooks.rows
            if hook is not None and hook.wrap is not None:
                bound = hook.wrap(self._inner(self._joined(bound, range(first, i)), i, again=hook.steps_again))
                first = i
        return self._joined(bound, range(first, len(self.plan.hooks)))

    def _joined(self, inner: BoundWriter, part: range) -> BoundWriter:
        stages = [(f"the transform {type(self.plan.parts[i]).__name__}", self._stage(i)) for i in part]
        stages = [(name, stage) for name, stage in stages if stage.step or stage.reset]
        return _BoundChain(inner, self, part, stages) if stages else inner

    def _stage(self, i: int) -> Stage:
        plans, every = self.plans, self.plans[:1] if shared(self.plans, i) else self.plans
        if self.plan.hooks[i].does_nothing and self.plan.hooks[i].rows is None:
            return Stage(None, None)
        if len(every) == 1:
            return make_stage(self.plan, plans[0], i, self.memory, slice(None))
        rows = enumerate(plans)
        return row_by_row(
            [make_stage(self.plan, chain, i, self.memory, slice(row, row + 1)) for row, chain in rows], self.progress
        )

    def _inner(self, writer: BoundWriter, i: int, *, again: bool) -> InnerWriter:
        """Return the writer that transform ``i`` wraps."""
        memory, values = self.memory, self.plan.values[i]
        root_inputs = self.plan.root_inputs_before(i) if again else ()
        return InnerWriter(
            writer,
            [plan.parts[i] for plan in self.plans],
            self.rows.n,
            [(memory.root(values[key]), memory.next(values[key])) for key in root_inputs],
            {key: memory.next(value) for key, value in values.items()},
        )


class _CopiedBase(BoundWriter):
    """A bound writer of a base that writes its own rows: copies the entries that transforms overwrite.

    Args:
        inner: writes the base's own rows.
        own: these rows.
        rows: the rows that the transforms read and write.
        keys: the entries that are not in the memory of ``own`` there.
    """

    def __init__(self, inner: BoundWriter, own: Rows, rows: Rows, keys: Sequence[Key]) -> None:
        self.inner, self.rows, self.resets_in_step = inner, rows, inner.resets_in_step
        # Done entries that the base does not write in every step are False, except in ``next`` of rows that have ended.
        flags = [] if own.layout.flags_every_step else [key for key in keys if key in DONE_NAMES]
        others = [key for key in keys if key not in flags]
        self._flags = [(rows.next[key], own.next[key]) for key in flags]
        self._root_flags = [rows.root[key] for key in flags]
        self._others = [(rows.next[key], own.next[key]) for key in others]
        self._root = [(rows.root[key], own.root[key]) for key in others if key in rows.root]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        return self._copied(self.inner.step(actions, at), at)

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        ended = self._copied(self.inner.step_and_reset(actions, env_info), None)
        if ended:
            self._copy_root([row for row, _, _ in ended])
        return ended

    def _copied(self, ended: Ended, at: Sequence[int] | None) -> Ended:
        some: Any = slice(None) if at is None else at
        for array, original in self._others:
            array[some] = original[some]
        if ended or self.rows.done_dirty:
            for array, original in self._flags:
                array[some] = original[some]
            self.rows.done_dirty = bool(ended) or at is not None
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        self.inner.reset(at, env_info)
        self._copy_root(at)

    def _copy_root(self, at: Sequence[int]) -> None:
        for array, original in self._root:
            copy_rows(array, original, at)
        for array in self._root_flags:
            clear_rows(array, at)


class _BoundChain(BoundWriter):
    """A bound writer with the transforms of a part of a chain.

    Args:
        inner: bound writer of the rows before these transforms.
        chains: the chains of the rows.
        part: positions of the transforms.
        stages: their functions, with names for errors.
    """

    def __init__(self, inner: BoundWriter, chains: _Chains, part: range, stages: list[tuple[str, Stage]]) -> None:
        self.inner, self.progress = inner, chains.progress
        self.rows, self.base_rows = chains.rows, chains.base_rows
        # Done entries of the root that this chain must clear at a reset: the base clears the arrays that both share.
        base_done = {id(array) for array, _ in self.base_rows.done.values()}
        self._root_done = [array for array, _ in self.rows.done.values() if id(array) not in base_done]
        # Transforms that read the root of the base would read the next episode's.
        self.resets_in_step = inner.resets_in_step and not any(plan.reads_base_root for plan in chains.plans)
        self._may_end = any(plan.parts[i].writes_done for plan in chains.plans for i in part)
        #: Done entries ``[n, *shape]`` of ``next`` behind these transforms.
        behind = chains.plan.values[part.stop]
        self._done = {name: chains.memory.next(behind[name]) for name in DONE_NAMES if name in behind}
        self._steps = [(stage.step, name) for name, stage in stages if stage.step is not None]
        self._resets = [(stage.reset, name) for name, stage in stages if stage.reset is not None]
        #: Arrays of ``next`` that are written in all rows; rows that a step excludes get their values back.
        self._written = [array for _, stage in stages for array in stage.written]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        if self.rows.done_dirty:
            self._pass_done_dirty()
        kept = None if at is None else [array.copy() for array in self._written]
        ended = self.inner.step(actions, at)
        more = self._transform(at)
        if kept is not None:
            others = np.ones(self.rows.n, bool)
            others[at] = False
            for array, before in zip(self._written, kept, strict=True):
                array[others] = before[others]
        if more and self._may_end:
            self.base_rows.done_dirty = True
            return self._ended(at)
        return ended

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        if not self.resets_in_step:
            return super().step_and_reset(actions, env_info)
        if self.rows.done_dirty:
            self._pass_done_dirty()
        ended = self.inner.step_and_reset(actions, env_info)
        if self._transform(None) and self._may_end:
            self.base_rows.done_dirty = True
            was_reset = {row for row, _, _ in ended}
            ended = self._ended(None)
            rest = [row for row, _, _ in ended if row not in was_reset]
            if rest:
                self.inner.reset(rest, None if env_info is None else [env_info[row] for row in rest])
        if ended:
            self._begin([row for row, _, _ in ended])
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        self.inner.reset(at, env_info)
        self._begin(at)

    def _pass_done_dirty(self) -> None:
        """Let the innermost writer know that a done entry was set behind this chain: it clears the entry."""
        self.rows.done_dirty = False
        self.base_rows.done_dirty = True

    def _transform(self, at: Sequence[int] | None) -> bool:
        """Transform ``next`` of some rows (None: all); return whether a transform may have ended a row."""
        more = False
        self.progress.words[self.progress.at] = 0
        for step, name in self._steps:
            try:
                more = step(at) or more
            except Exception as error:
                add_note(error, f"in the step of {name}")
                raise
        return more

    def _begin(self, at: Sequence[int]) -> None:
        """Transform the root of rows that were reset."""
        for flags in self._root_done:
            clear_rows(flags, at)
        for reset, name in self._resets:
            try:
                reset(at)
            except Exception as error:
                add_note(error, f"in the reset of {name}")
                raise

    def _ended(self, at: Sequence[int] | None) -> Ended:
        """Return the rows that have ended, read from the done entries behind the transforms."""
        following, n = self._done, self.rows.n
        flags: list[Any] = [
            following[name].reshape(n, -1).any(-1).tolist() if name in following else [False] * n
            for name in ("terminated", "truncated")
        ]
        done: Any = following["done"].reshape(n, -1).any(-1).tolist()
        rows = range(n) if at is None else at
        return [(row, flags[0][row], flags[1][row]) for row in rows if done[row]]
