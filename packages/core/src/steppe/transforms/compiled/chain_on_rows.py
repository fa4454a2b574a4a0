"""TransformedRows: the row writer of an environment or a batch with transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import BoundWriter, Ended, EnvInfos, EnvRows, Progress, RowLayout, Rows, RowWriter
from steppe.errors import add_note
from steppe.storage import build_td, clear_rows, copy_rows
from steppe.transforms.base import Transform
from steppe.transforms.compiled.repeated import Repeated
from steppe.transforms.compiled.row_blocks import InBlocks, blocks_of, part_in_blocks
from steppe.transforms.compiled.row_inverses import RowInverses
from steppe.transforms.compiled.row_plan import Memory, RowPlan, Value
from steppe.transforms.compiled.stages import RowByRow, Stage, make_stage
from steppe.transforms.compiled.transform_hooks import Array, BeforeReset, InverseHook
from steppe.transforms.transform_keys import Key

__all__ = ["TransformedRows", "bound_chain", "shared"]

_DONE = ("done", "terminated", "truncated")
#: The argument of inverses that only note that a step begins.
_NO_DATA = build_td({}, torch.Size(()), None)


class TransformedRows(RowWriter):
    """Writes rows of transformed data.

    A transform runs once for all rows if those of all environments have the same ``Transform.shared_key``, otherwise
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
        self._inverses = RowInverses(plans[0], base.layout.actions, of_steps=base.n == 1)
        self.inverts, self.in_use = base.inverts or bool(self._inverses), base.in_use
        #: Inverts and decodes the only action of the only row, an array; None if there are several.
        self._of_one = self._inverses.decoder_of_one(base) if self._inverses and self.n == 1 else None
        # A base that reads the whole root would need the caller's root without what these transforms change in it.
        on_arrays = base.on_arrays and not base.layout.reads_root and all(plan.hands_on for plan in plans)
        self.on_arrays = on_arrays and all(
            hook.rows is not None or hook.does_nothing or hook.only_inverts for plan in plans for hook in plan.hooks
        )
        if any(plan.reads_root_before(i) for plan in plans for i in plan.repeating):
            self.on_arrays = False  # repeated steps begin at other roots than that of the caller
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
        if self._inverses:
            # A single action needs no blocks and stacks of one row.
            if self._of_one is not None and len(rows := actions[self.layout.action_keys[0]]) == 1:
                return [self._of_one(rows[0, ...].copy())]
            actions = self._inverses.of_rows(actions)
        return self.base.decode(actions)

    def decoder_of_one(self) -> Callable[[torch.Tensor], Any] | None:
        """Return a function that checks and decodes the only action of the only row; None if there are several."""
        if not self._inverses:
            return self.base.decoder_of_one() if self.n == 1 else None
        return None if self._of_one is None else self.layout.actions.from_one(self._of_one)

    def decoder_of_rows(self) -> Callable[[torch.Tensor], Any] | None:
        """Return that of the base, if no transform changes actions."""
        return None if self._inverses else self.base.decoder_of_rows()

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
        own = self.base.own_rows
        if own is not None:
            values = self.plans[0].values[0]
            over = {key: value for key, value in values.items() if value in self.plans[0].written_over}
            bound = self.base.bind(own, progress)
            if over:
                # Done entries are False in a root that was reset, unless the base writes them in every step.
                flags = set() if self.base.layout.flags_every_step else {*_DONE}
                others = {key: value for key, value in over.items() if key not in flags}
                bound = _Copied(
                    bound,
                    own,
                    [(memory.root(value), own.root[key]) for key, value in others.items() if value.in_root],
                    [(memory.next(value), own.next[key]) for key, value in others.items()],
                    [(memory.next(value), own.next[key]) for key, value in over.items() if key in flags],
                )
            return bound_chain(self.plans, self.shares, bound, memory, (rows, own), progress)
        if type(self.base) is EnvRows and len(self.plans) == self.n > 1:
            end, size = part_in_blocks(self.plans, self.shares)
            blocks = blocks_of(self.n, size)
            if len(blocks) > 1:
                return self._in_blocks(self.base, blocks, end, memory, progress)
        base_rows = self._base_rows(memory)
        bound = self.base.bind(base_rows, progress)
        return bound_chain(self.plans, self.shares, bound, memory, (rows, base_rows), progress)

    def _in_blocks(
        self, base: EnvRows, blocks: list[slice], end: int, memory: Memory, progress: Progress
    ) -> BoundWriter:
        """Return a writer that runs the transforms before ``end`` on blocks of rows, and the others on all rows."""
        plan, rows = self.plans[0], memory.rows
        places = dict.fromkeys(value.place for values in plan.values[: end + 1] for value in values.values())
        live = {value.place for values in plan.values[end:] for value in values.values()}
        longest = max(block.stop - block.start for block in blocks)
        # Values that nothing reads behind these transforms share memory between blocks, which stays in the cache.
        scratch = {
            (place, at_root): np.zeros((longest, *place.shape), place.dtype)
            for place in places
            if place not in live
            for at_root in ((True, False) if place.in_root else (False,))
        }
        bound = []
        for block in blocks:
            arrays = {at: array[: block.stop - block.start] for at, array in scratch.items()}
            for place in live.intersection(places):
                arrays[place, False] = memory.next(place)[block]
                if place.in_root:
                    arrays[place, True] = memory.root(place)[block]
            root, following = ({key: array[block] for key, array in level.items()} for level in (rows.root, rows.next))
            some = Rows(rows.layout, root, following)
            part = Memory(some, arrays)
            base_rows = self._base_rows(part)
            noted = Progress(progress.words, progress.at, progress.base - 1 + block.start)
            first = EnvRows(base.envs[block], base.layout).bind(base_rows, noted)
            chain = bound_chain(
                self.plans[block], self.shares, first, part, (some, base_rows), noted, plan=plan, part=range(end)
            )
            bound.append((block, chain, base_rows))
        rest = range(end, len(plan.parts))
        return bound_chain(self.plans, self.shares, InBlocks(rows, bound), memory, (rows, rows), progress, part=rest)

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

    def shares(self, stage: int) -> bool:
        """Whether one call of the transform at a position serves all rows."""
        return shared(self.plans, stage)


def shared(plans: Sequence[RowPlan], stage: int) -> bool:
    """Whether one call of the transform at a position serves the environments of these chains."""
    if len(plans) == 1:
        return True
    keys = [plan.parts[stage].key_of_rows() for plan in plans]
    return keys[0] is not None and all(key == keys[0] for key in keys)


def bound_chain(
    plans: Sequence[RowPlan],
    shares: Callable[[int], bool],
    base: BoundWriter,
    memory: Memory,
    rows: tuple[Rows, Rows],
    progress: Progress,
    *,
    plan: RowPlan | None = None,
    part: range | None = None,
) -> BoundWriter:
    """Return a bound writer with a chain of transforms.

    Args:
        plans: the chain of each row, or a single one that serves all rows.
        shares: whether one call of the transform at a position serves all rows.
        base: bound writer of the rows before the transforms.
        memory: the arrays of the values.
        rows: the rows of the caller and those of the base.
        progress: notes the row at work.
        plan: the plan whose values have the memory. Default: the first chain.
        part: positions of the transforms. Default: all.
    """
    plan = plan or plans[0]
    part = range(len(plan.parts)) if part is None else part
    first, bound = part.start, base

    def chain(end: int) -> BoundWriter:
        """Return ``bound`` with the transforms from ``first`` to before ``end``."""
        joined = _BoundChain(bound, plans, shares, memory, rows, progress, range(first, end), plan)
        return bound if joined.idle else joined

    for i in plan.repeating:
        if i not in part:
            continue
        hooks_of_rows = [chain_plan.hooks[i].rows for chain_plan in plans]
        counts = [(hooks.repeats or 1) if hooks is not None else 1 for hooks in hooks_of_rows]
        if max(counts) == 1:
            continue
        if i > first:
            bound = chain(i)
        values = plan.values[i]
        carried = [(memory.root(values[key]), memory.next(values[key])) for key in plan.carried_before(i)]
        rewards = [memory.next(values[key]) for key in plan.rewards_before(i)]
        bound = Repeated(bound, counts * rows[0].n if len(counts) == 1 else counts, carried, rewards)
        first = i
    return chain(part.stop)


class _Copied(BoundWriter):
    """A bound writer of its own rows, with copies of the entries that transforms overwrite.

    Args:
        inner: the bound writer.
        rows: its rows.
        root: copy and original of each such entry of the root, ``[n, *shape]``.
        following: the same for ``next``.
        flags: the same for done entries of ``next``; they are copied only if one of them may be True.
    """

    def __init__(
        self,
        inner: BoundWriter,
        rows: Rows,
        root: list[tuple[Array, Array]],
        following: list[tuple[Array, Array]],
        flags: list[tuple[Array, Array]],
    ) -> None:
        self.inner, self.resets_in_step = inner, inner.resets_in_step
        self._rows, self._root, self._next, self._flags = rows, root, following, flags

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        ended = self.inner.step(actions, at)
        some = slice(None) if at is None else list(at)
        for copy, original in (*self._next, *self._flags):
            copy[some] = original[some]
        self._rows.done_dirty = True
        return ended

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        ended = self.inner.step_and_reset(actions, env_info)
        for copy, original in self._next:
            copy[...] = original
        if ended or self._rows.done_dirty:
            for copy, original in self._flags:
                copy[...] = original
            self._rows.done_dirty = bool(ended)
        if ended:
            self._copy_root([row for row, _, _ in ended])
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        self.inner.reset(at, env_info)
        self._copy_root(list(at))

    def _copy_root(self, rows: list[int]) -> None:
        for copy, original in self._root:
            copy_rows(copy, original, rows)


class _BoundChain(BoundWriter):
    """A bound writer with the transforms of a part of a chain.

    Args:
        inner: bound writer of the rows before these transforms.
        plans, shares, memory, rows, progress: as for :func:`bound_chain`.
        part: positions of the transforms.
        plan: the plan whose values have the memory.

    Attributes:
        idle: whether there is nothing to do, as for transforms that only change actions.
    """

    def __init__(
        self,
        inner: BoundWriter,
        plans: Sequence[RowPlan],
        shares: Callable[[int], bool],
        memory: Memory,
        rows: tuple[Rows, Rows],
        progress: Progress,
        part: range,
        plan: RowPlan,
    ) -> None:
        self.inner, self.progress = inner, progress
        self.rows, self.base_rows = rows
        # Done entries of the root that this chain must clear at a reset: the base clears the arrays that both share.
        base_done = {id(array) for array, _ in self.base_rows.done.values()}
        self._root_done = [array for array, _ in self.rows.done.values() if id(array) not in base_done]
        # Transforms that read entries of the base at the root would read those of the next episode.
        self.resets_in_step = inner.resets_in_step and not any(chain.reads_base_root for chain in plans)
        self._may_end = any(chain.parts[i].writes_done for chain in plans for i in part)
        #: Done entries ``[n, *shape]`` of ``next`` behind these transforms.
        self._done = {name: memory.next(value) for name, value in plan.values[part.stop].items() if name in _DONE}
        #: Whether a transform computes with torch, and needs torch.no_grad(): kernels do without, which saves time.
        self._by_torch = False
        self._steps: list[tuple[Callable[[Sequence[int] | None], bool], Transform]] = []
        self._resets: list[tuple[Callable[[Sequence[int]], None], Transform]] = []
        #: Functions of transforms with ``notices_calls``. As on TensorDicts, the last transform notes a call first.
        self._before_step: list[InverseHook] = []
        self._before_reset: list[BeforeReset] = []
        for i in reversed(part):
            for chain in plans[:1] if shares(i) else plans:
                hook = chain.hooks[i]
                if hook.rows is not None and hook.rows.notices_calls:
                    self._before_step += [] if hook.inverse is None else [hook.inverse]
                    self._before_reset += [] if hook.before_reset is None else [hook.before_reset]
        #: Arrays of ``next`` that kernels write in all rows; rows that a step excludes get their values back.
        self._kernel_written: list[Array] = []
        for i in part:
            hook = plan.hooks[i]
            if hook.does_nothing and hook.rows is None:
                continue
            before, behind = plan.values[i], plan.values[i + 1]
            if shares(i):
                self._add(make_stage(plan, plan, i, memory, rows[0], slice(None)), plan.parts[i])
            else:
                each = enumerate(plans)
                stages = [make_stage(plan, chain, i, memory, rows[0], slice(row, row + 1)) for row, chain in each]
                self._add(RowByRow(stages, progress), plan.parts[i])
            if hook.rows is not None or hook.pairs is not None:
                changed = [value for key, value in behind.items() if before.get(key) is not value]
                written = [key for _, key in hook.pairs or ()] if hook.rows is None else hook.rows.writes
                over = [*written, "done", "truncated", "terminated"]
                changed += [behind[key] for key in over if key in behind and behind[key] is before.get(key)]
                self._kernel_written += [memory.next(value) for value in changed]
        self.idle = not (self._steps or self._resets or self._before_step or self._before_reset)

    def _add(self, stage: Stage, part: Transform) -> None:
        self._by_torch = self._by_torch or stage.by_torch
        if stage.steps:
            self._steps.append((stage.step, part))
        if stage.resets:
            self._resets.append((stage.reset, part))

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        self._pass_done_dirty()
        kept = None if at is None else [array.copy() for array in self._kernel_written]
        for note in self._before_step:
            note(_NO_DATA)
        ended = self.inner.step(actions, at)
        more = self._transform(at)
        if kept is not None:
            others = np.ones(self.rows.n, bool)
            others[at] = False
            for array, before in zip(self._kernel_written, kept, strict=True):
                array[others] = before[others]
        if more and self._may_end:
            self.base_rows.done_dirty = True
            return self._ended(at)
        return ended

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        if not self.resets_in_step:
            return super().step_and_reset(actions, env_info)
        self._pass_done_dirty()
        for note in self._before_step:
            note(_NO_DATA)
        ended = self.inner.step_and_reset(actions, env_info)
        if self._transform(None) and self._may_end:
            self.base_rows.done_dirty = True
            was_reset = {row for row, _, _ in ended}
            ended = self._ended(None)
            rest = [row for row, _, _ in ended if row not in was_reset]
            if rest:
                self.inner.reset(rest, None if env_info is None else [env_info[row] for row in rest])
        if ended:
            for note_reset in self._before_reset:
                note_reset(None)
            self._begin([row for row, _, _ in ended])
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        for note in self._before_reset:
            note(None)
        self.inner.reset(at, env_info)
        self._begin(at)

    def _pass_done_dirty(self) -> None:
        """If a done entry was set behind this chain, let the innermost writer know, which clears it."""
        if self.rows.done_dirty:
            self.rows.done_dirty = False
            self.base_rows.done_dirty = True

    def _transform(self, at: Sequence[int] | None) -> bool:
        """Transform ``next`` of some rows (None: all); return whether a transform may have ended a row."""
        if not self._by_torch:
            return self._stepped(at)
        with torch.no_grad():
            return self._stepped(at)

    def _stepped(self, at: Sequence[int] | None) -> bool:
        more = False
        self.progress.words[self.progress.at] = 0
        for step, part in self._steps:
            try:
                more = step(at) or more
            except Exception as error:
                add_note(error, f"in the step of the transform {type(part).__name__}")
                raise
        return more

    def _begin(self, at: Sequence[int]) -> None:
        """Transform the root of rows that were reset."""
        for flags in self._root_done:
            clear_rows(flags, at)
        if not self._by_torch:
            self._run_resets(at)
            return
        with torch.no_grad():
            self._run_resets(at)

    def _run_resets(self, at: Sequence[int]) -> None:
        for reset, part in self._resets:
            try:
                reset(at)
            except Exception as error:
                add_note(error, f"in the reset of the transform {type(part).__name__}")
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
