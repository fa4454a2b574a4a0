"""TransformedRows: a row writer with transforms behind it, of one environment or of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import BoundWriter, Ended, EnvInfos, EnvRows, Progress, RowLayout, Rows, RowWriter
from steppe.errors import add_note
from steppe.transforms.base import Transform
from steppe.transforms.compiled.repeated import Repeated
from steppe.transforms.compiled.row_blocks import InBlocks, blocks_of, part_in_blocks
from steppe.transforms.compiled.row_inverses import RowInverses
from steppe.transforms.compiled.row_plan import Memory, RowPlan, Value
from steppe.transforms.compiled.stages import RowByRow, make_stage

__all__ = ["BoundStages", "TransformedRows", "bound_chain", "shared"]

_DONE = ("done", "terminated", "truncated")


class TransformedRows(RowWriter):
    """Writes rows through a chain of transforms.

    A transform runs once for all rows where the environments' transforms share it (``Transform.shared_key``), otherwise
    row by row.

    Args:
        base: writes the rows before the transforms.
        plans: the chain of each environment, or of all where there is one plan. They have the same specs.
    """

    def __init__(self, base: RowWriter, plans: Sequence[RowPlan]) -> None:
        self.base, self.plans = base, list(plans)
        self.n = base.n
        # Chains differ in their settings: one that may end a row is enough.
        layouts = [plan.layout for plan in plans]
        self.layout: RowLayout = next((one for one in layouts if one.flags_every_step), layouts[0])
        self._inverses = RowInverses(plans[0], base.layout.actions, of_steps=base.n == 1)
        self.inverts, self.in_use = base.inverts or bool(self._inverses), base.in_use
        self._of_array, self._of_tensor = self._decoders_of_one() if self.n == 1 else (None, None)
        # What reads the root before this chain cannot be shown the caller's.
        seen = base.on_arrays and not base.layout.reads_root and all(plan.hands_on for plan in plans)
        self.on_arrays = seen and all(
            hook.rows is not None or hook.asks is not None or hook.does_nothing or hook.only_inverts
            for plan in plans
            for hook in plan.hooks
        )
        if any(plan.reads_root_before(i) for plan in plans for i in plan.repeating):
            self.on_arrays = False  # the steps that are repeated begin at other roots
        self._given = {} if base.own_rows is None else self._memory_of_base(base.own_rows)

    def _memory_of_base(self, rows: Rows) -> dict[tuple[Value, bool], np.ndarray[Any, Any]]:
        """Return the memory of a base's values, if it writes its own rows; a value that is written over has a copy."""
        plan = self.plans[0]
        given: dict[tuple[Value, bool], np.ndarray[Any, Any]] = {}
        over = plan.written_over
        for key, value in plan.values[0].items():
            for at_root, arrays in ((True, rows.root), (False, rows.next)):
                if value.in_root or not at_root:
                    array = arrays[key]
                    given[value.place, at_root] = np.zeros_like(array) if value in over else array
        return given

    def decode(self, actions: dict[Any, np.ndarray[Any, Any]]) -> Any:
        """Turn actions of the caller into native ones: the inverses, last transform first, then the base."""
        if self._inverses:
            # One action goes without blocks and stacks of one row.
            of_array, of_tensor = self._of_array, self._of_tensor
            if of_tensor is not None and len(given := actions[self.layout.action_keys[0]]) == 1:
                one = given[0, ...].copy()
                return [of_tensor(torch.from_numpy(one)) if of_array is None else of_array(one)]
            actions = self._inverses.of_rows(actions)
        return self.base.decode(actions)

    def _decoders_of_one(self) -> tuple[Callable[[Any], Any] | None, Callable[[torch.Tensor], Any] | None]:
        """What decodes the only action of the only row, an array or a tensor that fits; None where there are more."""
        decode = self.base.decoder_of_one()
        if decode is None or not self._inverses:
            return None, decode
        of_array = None if self.base.inverts else self._inverses.decoder_of_array()
        return of_array, self._inverses.decoder_of_one(decode)

    def decoder_of_one(self) -> Callable[[torch.Tensor], Any] | None:
        """A function that holds the only action of the only row against its rule, and decodes it.

        It takes a tensor ``[*shape]``; None where there are more actions, or rows.
        """
        codec, of_tensor = self.layout.actions, self._of_tensor
        if of_tensor is None or not self._inverses:
            return of_tensor
        judged = None if self._of_array is None else codec.from_one(self._of_array)
        if judged is not None:
            return judged
        fit = codec.rules[codec.keys[0]].fit
        return lambda action: of_tensor(fit(action))

    def decoder_of_rows(self) -> Callable[[torch.Tensor], Any] | None:
        """Return that of the base, if no transform changes actions."""
        return None if self._inverses else self.base.decoder_of_rows()

    def new_rows(self) -> Rows:
        """Return rows whose entries are in the memory of the base, where that writes its own rows."""
        rows = Rows.new(self.layout, self.n)
        if not self._given:
            return rows
        memory, final = Memory(rows, self._given), self.plans[0].values[-1]
        inputs = {key: rows.root[key] for key in self.layout.action_keys if key in rows.root}
        root = {key: memory.root(value) for key, value in final.items() if value.in_root}
        return Rows(self.layout, {**root, **inputs}, {key: memory.next(value) for key, value in final.items()})

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write these rows."""
        memory = Memory(rows, self._given)
        own = self.base.own_rows
        if own is not None:
            values = self.plans[0].values[0]
            over = [key for key, value in values.items() if value in self.plans[0].written_over]
            bound = self.base.bind(own, progress)
            if over:
                root = [(memory.root(values[key]), own.root[key]) for key in over if values[key].in_root]
                bound = _Copied(bound, root, [(memory.next(values[key]), own.next[key]) for key in over])
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
        """Write blocks of rows, each with the first transforms up to ``end``, and run the others on all rows."""
        plan, rows = self.plans[0], memory.rows
        places = dict.fromkeys(value.place for values in plan.values[: end + 1] for value in values.values())
        live = {value.place for values in plan.values[end:] for value in values.values()}
        longest = max(block.stop - block.start for block in blocks)
        # What nobody sees behind these transforms is written over by the next block, while it is in the cache.
        scratch = {
            (place, at_root): np.zeros((longest, *place.shape), place.dtype)
            for place in places
            if place not in live
            for at_root in ((True, False) if place.in_root else (False,))
        }
        bound = []
        for block in blocks:
            given = {at: array[: block.stop - block.start] for at, array in scratch.items()}
            for place in live.intersection(places):
                given[place, False] = memory.next(place)[block]
                if place.in_root:
                    given[place, True] = memory.root(place)[block]
            root, following = ({key: one[block] for key, one in part.items()} for part in (rows.root, rows.next))
            some = Rows(rows.layout, root, following)
            part = Memory(some, given)
            base_rows = self._base_rows(part)
            own = Progress(progress.words, progress.at, progress.base - 1 + block.start)
            first = EnvRows(base.envs[block], base.layout).bind(base_rows, own)
            chain = bound_chain(
                self.plans[block], self.shares, first, part, (some, base_rows), own, plan=plan, part=range(end)
            )
            bound.append((block, chain, base_rows))
        rest = range(end, len(plan.parts))
        return bound_chain(self.plans, self.shares, InBlocks(rows, bound), memory, (rows, rows), progress, part=rest)

    def _base_rows(self, memory: Memory) -> Rows:
        """What the base writes of the rows that a memory is for."""
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
        """Whether one call of a transform serves all rows."""
        return shared(self.plans, stage)


def shared(plans: Sequence[RowPlan], stage: int) -> bool:
    """Whether one call of a transform serves the environments of these chains."""
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
    """A bound writer with a chain behind it.

    Args:
        plans: the chain of each row, or one for all.
        shares: whether one call of transform i serves all rows.
        base: writes the rows before the transforms.
        memory: where values are.
        rows: those of the caller, and those of the base writer.
        progress: notes which row is at work.
        plan: says where values are; the first of the chains by default.
        part: which of the transforms; all of them by default.
    """
    plan = plan or plans[0]
    part = range(len(plan.parts)) if part is None else part
    first, bound = part.start, base

    def chain(end: int) -> BoundWriter:
        """The transforms from the first that is not yet there up to another one."""
        stages = BoundStages(plans, shares, memory, rows[0], progress, range(first, end), plan=plan)
        if stages.idle:
            return bound
        done = {name: memory.next(value) for name, value in plan.values[end].items() if name in _DONE}
        return _BoundChain(bound, stages, rows, done)

    for i in plan.repeating:
        if i not in part:
            continue
        counts = [(hooks.repeats or 1) if (hooks := one.hooks[i].rows) is not None else 1 for one in plans]
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
    """A bound writer of rows of its own, and copies of entries that transforms write over.

    Args:
        inner: writes its rows.
        root: the arrays of copies and originals at the root, ``[n, *shape]``.
        following: the same of ``next``.
    """

    def __init__(self, inner: BoundWriter, root: list[tuple[Any, Any]], following: list[tuple[Any, Any]]) -> None:
        self.inner, self.resets_in_step = inner, inner.resets_in_step
        self._root, self._next = root, following

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        ended = self.inner.step(actions, at)
        some: Any = slice(None) if at is None else list(at)
        for copy, original in self._next:
            copy[some] = original[some]
        return ended

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        ended = self.inner.step_and_reset(actions, env_info)
        for copy, original in self._next:
            copy[...] = original
        if ended:
            self._copy_root([row for row, _, _ in ended])
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        self.inner.reset(at, env_info)
        self._copy_root(list(at))

    def _copy_root(self, rows: list[int]) -> None:
        for copy, original in self._root:
            copy[rows] = original[rows]


class _BoundChain(BoundWriter):
    """A bound writer, and transforms behind it.

    Args:
        inner: writes the rows before these transforms.
        chain: what they do.
        rows: those of the caller, and those of the base writer.
        done: arrays ``[n, *shape]`` of the done entries of ``next`` behind these transforms.
    """

    def __init__(self, inner: BoundWriter, chain: BoundStages, rows: tuple[Rows, Rows], done: dict[str, Any]) -> None:
        self.inner, self.chain, self.done = inner, chain, done
        self.rows, self.base_rows = rows
        #: Transforms that read the root of the base would see that of the next episode.
        self.resets_in_step = inner.resets_in_step and not chain.reads_base_root

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        chain = self.chain
        if self.rows.done_dirty:
            # A done entry was set behind this chain, in memory that the innermost writer clears.
            self.rows.done_dirty = False
            self.base_rows.done_dirty = True
        kept = None if at is None else [array.copy() for array in chain.kernel_written]
        chain.before_step()
        ended = self.inner.step(actions, at)
        more = chain.step(at)
        if kept is not None:
            others = np.ones(self.rows.n, bool)
            others[at] = False
            for array, before in zip(chain.kernel_written, kept, strict=True):
                array[others] = before[others]
        if more and chain.may_end:
            self.base_rows.done_dirty = True
            return self._ended(at)
        return ended

    def _ended(self, at: Sequence[int] | None) -> Ended:
        following, n = self.done, self.rows.n
        flags: list[Any] = [
            following[name].reshape(n, -1).any(-1).tolist() if name in following else [False] * n
            for name in ("terminated", "truncated")
        ]
        done: Any = following["done"].reshape(n, -1).any(-1).tolist()
        rows = range(n) if at is None else at
        return [(row, flags[0][row], flags[1][row]) for row in rows if done[row]]

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        if not self.resets_in_step:
            return super().step_and_reset(actions, env_info)
        chain = self.chain
        chain.before_step()
        ended = self.inner.step_and_reset(actions, env_info)
        if chain.step(None) and chain.may_end:
            was_reset = {row for row, _, _ in ended}
            ended = self._ended(None)
            rest = [row for row, _, _ in ended if row not in was_reset]
            if rest:
                self.inner.reset(rest, None if env_info is None else [env_info[row] for row in rest])
        if ended:
            at = [row for row, _, _ in ended]
            chain.before_reset()
            self.rows.begin(at)
            chain.reset(at)
        return ended

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        self.chain.before_reset()
        self.inner.reset(at, env_info)
        self.rows.begin(at)
        self.chain.reset(at)


class BoundStages:
    """What the transforms of a chain do to rows, in order.

    Args:
        plans: the chain of each row, or one for all.
        shares: whether one call of transform i serves all rows.
        memory: where values are.
        rows: what the caller sees.
        progress: notes which row is at work.
        part: which of the transforms; all of them by default.
        plan: says where values are; the first of the chains by default.

    Attributes:
        may_end: whether one of these transforms may end a row.
        reads_base_root: whether a transform reads what the base has written at the root.
    """

    def __init__(
        self,
        plans: Sequence[RowPlan],
        shares: Callable[[int], bool],
        memory: Memory,
        rows: Rows,
        progress: Progress,
        part: range | None = None,
        *,
        plan: RowPlan | None = None,
    ) -> None:
        plan = plan or plans[0]
        part = range(len(plan.hooks)) if part is None else part
        self.progress = progress
        self.may_end = any(one.parts[i].writes_done for one in plans for i in part)
        self.reads_base_root = any(one.reads_base_root for one in plans)
        #: Whether some transform computes with torch, as if nobody asked for gradients: kernels need not be told.
        self._by_torch = False
        self.steps: list[tuple[Callable[[Sequence[int] | None], bool], Transform]] = []
        self.resets: list[tuple[Callable[[Sequence[int]], None], Transform]] = []
        # The last transform is the first to know of a call.
        told = [
            told_of
            for i in reversed(part)
            for one in (plans[:1] if shares(i) else plans)
            if (told_of := one.hooks[i].rows) is not None
        ]
        self._before_step = [one.before_step for one in told if one.before_step is not None]
        self._before_reset = [one.before_reset for one in told if one.before_reset is not None]
        #: Entries of ``next`` that kernels write over all rows, to be restored where a step leaves rows out.
        self.kernel_written: list[np.ndarray[Any, Any]] = []
        for i in part:
            hook = plan.hooks[i]
            if hook.does_nothing and hook.rows is None:
                continue
            before, behind = plan.values[i], plan.values[i + 1]
            if shares(i):
                self._add(make_stage(plan, plan, i, memory, rows, slice(None)), plan.parts[i])
            else:
                each = enumerate(plans)
                stages = [make_stage(plan, one, i, memory, rows, slice(row, row + 1)) for row, one in each]
                self._add(RowByRow(stages, progress), plan.parts[i])
            if hook.rows is not None:
                changed = [value for key, value in behind.items() if before.get(key) is not value]
                over = [*hook.rows.writes, "done", "truncated", "terminated"]
                changed += [behind[key] for key in over if key in behind and behind[key] is before.get(key)]
                self.kernel_written += [memory.next(value) for value in changed]

    def _add(self, stage: Any, part: Transform) -> None:
        self._by_torch = self._by_torch or stage.by_torch
        if stage.steps:
            self.steps.append((stage.step, part))
        if stage.resets:
            self.resets.append((stage.reset, part))

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do: transforms of actions alone, say."""
        return not (self.steps or self.resets or self._before_step or self._before_reset)

    def before_step(self) -> None:
        """Tell the transforms that want to know it that a step begins."""
        for tell in self._before_step:
            tell()

    def before_reset(self) -> None:
        """Tell them that a reset begins."""
        for tell in self._before_reset:
            tell()

    def step(self, at: Sequence[int] | None) -> bool:
        """Take ``next`` of some rows through the chain; whether some transform may have ended one."""
        if not self._by_torch:
            return self._stepped(at)
        with torch.no_grad():
            return self._stepped(at)

    def reset(self, at: Sequence[int]) -> None:
        """Take the roots of rows that were reset through the chain."""
        with torch.no_grad():
            self._were_reset(at)

    def _stepped(self, at: Sequence[int] | None) -> bool:
        more = False
        self.progress.words[self.progress.at] = 0
        for step, part in self.steps:
            try:
                more = step(at) or more
            except Exception as error:
                add_note(error, f"in the step of the transform {type(part).__name__}")
                raise
        return more

    def _were_reset(self, at: Sequence[int]) -> None:
        for reset, part in self.resets:
            try:
                reset(at)
            except Exception as error:
                add_note(error, f"in the reset of the transform {type(part).__name__}")
                raise
