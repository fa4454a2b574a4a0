"""TransformedRows: a row writer with transforms behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import Arrays, BoundWriter, Ended, Progress, RowLayout, Rows, RowWriter
from steppe.errors import SpecError, StateError, add_note
from steppe.specs import Composite, union
from steppe.storage import TensorDictBuilder, build_td, entries
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import Hooks, RowArrays
from steppe.transforms.compiled.row_plan import RowPlan, Value

__all__ = ["TransformedRows", "shared"]


class TransformedRows:
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
        self.inverts = base.inverts or any(plans[0].action_pairs)
        self.on_arrays = base.on_arrays and all(
            hook.rows is not None or hook.does_nothing for plan in plans for hook in plan.hooks
        )

    def decode(self, actions: dict[Any, np.ndarray[Any, Any]]) -> Any:
        """Turn actions of the caller into native ones: the inverses, last transform first, then the base."""
        plan = self.plans[0]
        if any(plan.action_pairs):
            actions = dict(actions)
            for part, pairs in zip(reversed(plan.parts), reversed(plan.action_pairs), strict=True):
                for out_key, key in pairs:
                    actions[key] = _inverted(part, torch.from_numpy(actions.pop(out_key))).numpy()
            # What an inverse makes is an action of the base, and held against the rule for actions there.
            rules = self.base.layout.actions
            fitted = rules.fit({key: torch.from_numpy(actions[key]) for key in rules.keys})
            actions = {key: value.numpy() for key, value in fitted.items()}
        return self.base.decode(actions)

    def bind(self, rows: Rows, progress: Progress) -> BoundWriter:
        """Prepare to write these rows."""
        return _BoundChain(self, rows, progress)

    def shares(self, stage: int) -> bool:
        """Whether one call of a transform serves all rows."""
        return shared(self.plans, stage)


@torch.no_grad()
def _inverted(part: Transform, actions: torch.Tensor) -> torch.Tensor:
    """The inverse of actions ``[k, *shape]``, of rows or of steps: in one call where the transform takes rows."""
    given = actions if part.keeps_nothing else actions.clone()
    if part.key_of_rows() is not None:
        inverted: torch.Tensor = part._inv_apply_transform(given)
        return inverted
    return torch.stack([part._inv_apply_transform(action) for action in given.unbind(0)])


def shared(plans: Sequence[RowPlan], stage: int) -> bool:
    """Whether one call of a transform serves the environments of these chains."""
    if len(plans) == 1:
        return True
    keys = [plan.parts[stage].key_of_rows() for plan in plans]
    return keys[0] is not None and all(key == keys[0] for key in keys)


class _BoundChain:
    """The rows of a base writer, and the chain behind them."""

    def __init__(self, writer: TransformedRows, rows: Rows, progress: Progress) -> None:
        plan = writer.plans[0]
        self.rows = rows
        memory = Memory(rows)
        base_values = plan.values[0]
        self.base_rows = Rows(
            writer.base.layout,
            {
                **{key: rows.root[key] for key in writer.base.layout.root_keys if key in rows.layout.action_keys},
                **{key: memory.root(value) for key, value in base_values.items() if value.in_root},
            },
            {key: memory.next(value) for key, value in base_values.items()},
        )
        self.base = writer.base.bind(self.base_rows, progress)
        self.chain = BoundStages(writer.plans, writer.shares, memory, rows, progress)
        self.may_end = any(part.writes_done for one in writer.plans for part in one.parts)

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        chain = self.chain
        kept = None if at is None else [array.copy() for array in chain.kernel_written]
        chain.before_step()
        ended = self.base.step(actions, at)
        more = chain.step(at)
        if kept is not None:
            others = np.ones(self.rows.n, bool)
            others[at] = False
            for array, before in zip(chain.kernel_written, kept, strict=True):
                array[others] = before[others]
        if more and self.may_end:
            self.base_rows.flagged = self.rows.flagged = True
            return self._ended(at)
        return ended

    def _ended(self, at: Sequence[int] | None) -> Ended:
        following, n = self.rows.next, self.rows.n
        flags: list[Any] = [
            following[name].reshape(n, -1).any(-1).tolist() if name in following else [False] * n
            for name in ("terminated", "truncated")
        ]
        done: Any = following["done"].reshape(n, -1).any(-1).tolist()
        rows = range(n) if at is None else at
        return [(row, flags[0][row], flags[1][row]) for row in rows if done[row]]

    def reset(self, at: Sequence[int], env_info: Sequence[dict[str, Any] | None] | None = None) -> None:
        self.chain.before_reset()
        self.base.reset(at, env_info)
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
    """

    def __init__(
        self,
        plans: Sequence[RowPlan],
        shares: Callable[[int], bool],
        memory: Memory,
        rows: Rows,
        progress: Progress,
    ) -> None:
        plan = plans[0]
        self.progress = progress
        #: Whether some transform computes with torch, as if nobody asked for gradients: kernels need not be told.
        self._by_torch = False
        self.steps: list[tuple[Callable[[Sequence[int] | None], bool], Transform]] = []
        self.resets: list[tuple[Callable[[Sequence[int]], None], Transform]] = []
        # The last transform is the first to know of a call.
        told = [
            told_of
            for i in reversed(range(len(plan.hooks)))
            for one in (plans[:1] if shares(i) else plans)
            if (told_of := one.hooks[i].rows) is not None
        ]
        self._before_step = [one.before_step for one in told if one.before_step is not None]
        self._before_reset = [one.before_reset for one in told if one.before_reset is not None]
        #: Entries of ``next`` that kernels write over all rows, to be restored where a step leaves rows out.
        self.kernel_written: list[np.ndarray[Any, Any]] = []
        for i, hook in enumerate(plan.hooks):
            if hook.does_nothing and hook.rows is None:
                continue
            before, behind = plan.values[i], plan.values[i + 1]
            if shares(i):
                self._add(_stage(plan, plan, i, memory, rows, slice(None)), plan.parts[i])
            else:
                each = enumerate(plans)
                stages = [_stage(plan, one, i, memory, rows, slice(row, row + 1)) for row, one in each]
                self._add(_RowByRow(stages, progress), plan.parts[i])
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


class Memory:
    """Arrays of the values of a plan: the caller's rows where a value is one, rows of our own otherwise.

    Args:
        rows: what the caller sees.
        given: arrays of root and ``next`` of values that are somewhere else.
    """

    def __init__(self, rows: Rows, given: dict[tuple[Value, bool], np.ndarray[Any, Any]] | None = None) -> None:
        self.rows = rows
        self._own = dict(given or {})

    def next(self, value: Value) -> np.ndarray[Any, Any]:
        """The array ``[n, *shape]`` of a value in ``next``."""
        return self._of(value.place, False)

    def root(self, value: Value) -> np.ndarray[Any, Any]:
        """The same in the root."""
        return self._of(value.place, True)

    def _of(self, place: Value, root: bool) -> np.ndarray[Any, Any]:
        found = self._own.get((place, root))
        if found is None and place.row_key is not None:
            found = (self.rows.root if root else self.rows.next)[place.row_key]
        if found is None:
            found = self._own[place, root] = np.zeros((self.rows.n, *place.shape), place.dtype)
        return found


def _stage(plan: RowPlan, one: RowPlan, i: int, memory: Memory, rows: Rows, part: slice) -> Any:
    """What transform ``i`` of the chain ``one`` does to some of the rows; ``plan`` says where values are."""
    before, behind, hook = plan.values[i], plan.values[i + 1], one.hooks[i]

    def arrays(values: dict[Any, Value], root: bool) -> dict[Any, np.ndarray[Any, Any]]:
        take = memory.root if root else memory.next
        return {key: take(value)[part] for key, value in values.items() if value.in_root or not root}

    if hook.rows is not None and hook.rows.casts:
        casts = [key for key in hook.rows.casts if before[key].place is not behind[key].place]
        return _Casts(casts, arrays(before, True), arrays(behind, True), arrays(before, False), arrays(behind, False))
    if hook.rows is not None:
        root, following = (RowArrays(arrays(behind, at_root), arrays(before, at_root)) for at_root in (True, False))
        return _Kernel(hook, root, following)
    if hook.pairs is not None:
        return _Pairs(
            one.parts[i],
            hook,
            arrays(before, True),
            arrays(behind, True),
            arrays(before, False),
            arrays(behind, False),
        )
    return _OnTensorDicts(
        one,
        i,
        arrays(before, True),
        arrays(behind, True),
        arrays(before, False),
        arrays(behind, False),
        {key: array[part] for key, array in rows.root.items()},
    )


class _Kernel:
    """A transform that is written for blocks of rows."""

    def __init__(self, hook: Hooks, root: Arrays, following: Arrays) -> None:
        assert hook.rows is not None
        self.by_torch = hook.rows.by_torch
        self._step, self._reset = hook.rows.bind(root, following) if hook.rows.bind is not None else (None, None)
        self.steps, self.resets = self._step is not None, self._reset is not None

    def step(self, at: Sequence[int] | None) -> bool:
        # All rows: those that the step leaves out are restored afterwards.
        assert self._step is not None
        return bool(self._step())

    def reset(self, at: Sequence[int]) -> None:
        assert self._reset is not None
        self._reset(at)


class _Casts:
    """Casts of entries that others have read, which numpy has not cast when they were written."""

    by_torch = False

    def __init__(self, keys: list[Any], root: Arrays, root_behind: Arrays, following: Arrays, behind: Arrays) -> None:
        self._step = [(behind[key], following[key]) for key in keys]
        self._reset = [(root_behind[key], root[key]) for key in keys if key in root]
        self.steps, self.resets = bool(self._step), bool(self._reset)

    def step(self, at: Sequence[int] | None) -> bool:
        for target, source in self._step:
            target[...] = source
        return False

    def reset(self, at: Sequence[int]) -> None:
        for target, source in self._reset:
            for row in at:
                target[row] = source[row]


class _Pairs:
    """A transform of single entries, ``_apply_transform``: the result is copied to its row.

    One that does not take rows has one row, and is given it without its dimension.
    """

    by_torch = True

    def __init__(
        self, part: Transform, hook: Hooks, root: Arrays, root_behind: Arrays, following: Arrays, behind: Arrays
    ) -> None:
        assert hook.pairs is not None
        self.part, self.copies = part, not part.keeps_nothing
        self._apply = part._apply_transform
        self.takes_rows = part.key_of_rows() is not None
        self._step = [(self._tensor(following[a]), self._tensor(behind[b]), b) for a, b in hook.pairs if b in behind]
        self._reset = [
            (self._tensor(root[a]), self._tensor(root_behind[b]), b)
            for a, b in hook.pairs
            if a in root and b in root_behind
        ]
        self.steps, self.resets = bool(self._step), bool(self._reset)

    def _tensor(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self.takes_rows else tensor[0]

    def _run(self, columns: list[Any], at: Sequence[int] | None) -> None:
        if not self.takes_rows:
            at = None
        for source, target, key in columns:
            given = source[list(at)] if at is not None else source.clone() if self.copies else source
            value = self._apply(given)
            shape = target.shape if at is None else (len(at), *target.shape[1:])
            _check(self.part, key, value, shape, target.dtype, int(self.takes_rows))
            if at is None:
                target.copy_(value)
            else:
                target[list(at)] = value

    def step(self, at: Sequence[int] | None) -> bool:
        self._run(self._step, at)
        return self.part.writes_done

    def reset(self, at: Sequence[int]) -> None:
        self._run(self._reset, at if self.takes_rows and len(at) != len(self._reset[0][0]) else None)


class _OnTensorDicts:
    """Any other transform: rows are wrapped as TensorDicts, and what it replaced is copied back.

    One that does not take rows has one row, and its TensorDicts have the batch size of the environment, ``[]``.
    """

    by_torch = True

    def __init__(
        self,
        plan: RowPlan,
        i: int,
        root: Arrays,
        root_behind: Arrays,
        following: Arrays,
        behind: Arrays,
        whole_root: Arrays,
    ) -> None:
        self.part, self.hook = plan.parts[i], plan.hooks[i]
        specs, after = plan.before[i], plan.after
        self.n = len(next(iter(following.values())))
        self.takes_rows = self.part.key_of_rows() is not None
        takes, device = self.takes_rows, plan.layout.device
        copies = not self.part.keeps_nothing
        observed, done = specs.observation, specs.done
        seen = _Wrapped(union(observed, specs.reward, done), following, takes_rows=takes, copies=copies, device=device)
        first = _Wrapped(union(observed, done), root, takes_rows=takes, copies=copies, device=device)
        whole = union(after.observation, after.done, after.action)
        self._next, self._root = seen, first
        self._whole_root = _Wrapped(whole, whole_root, takes_rows=takes, copies=copies, device=device)
        self._behind, self._root_behind = (
            _Targets(arrays, before, takes_rows=takes) for arrays, before in ((behind, seen), (root_behind, first))
        )
        # A step sees the root as the environment before the transform is given it.
        self._inverses = [
            inverse for hook in reversed(plan.hooks[i:]) if hook.converts and (inverse := hook.inverse) is not None
        ]
        self._empty = torch.Size([self.n] if takes else []), device
        self.steps, self.resets = self.hook.step is not None, self.hook.reset is not None

    def step(self, at: Sequence[int] | None) -> bool:
        assert self.hook.step is not None
        at = at if self.takes_rows else None
        following, given = self._next(at)
        if self.hook.reads_root:
            root, _ = self._whole_root(at)
            for inverse in self._inverses:
                root = inverse(root)
        else:
            size, device = self._empty
            root = build_td({}, size if at is None else torch.Size([len(at)]), device)
        self._write(self.hook.step(root, following), given, self._behind, at)
        return self.part.writes_done

    def reset(self, at: Sequence[int]) -> None:
        assert self.hook.reset is not None
        some = at if self.takes_rows and len(at) != self.n else None
        whole, _ = self._whole_root(some)
        whole.set("_reset", torch.from_numpy(np.ones((*whole.batch_size, 1), bool)))
        fresh, given = self._root(some)
        self._write(self.hook.reset(whole, fresh), given, self._root_behind, some)

    def _write(
        self, data: TensorDictBase, given: dict[Any, torch.Tensor], targets: _Targets, at: Sequence[int] | None
    ) -> None:
        """Copy what was replaced, or written into, to the rows behind the transform."""
        if not isinstance(data, TensorDictBase):
            raise SpecError(f"{type(self.part).__name__} must return a TensorDict, found {type(data).__name__}.")
        level = entries(data) if type(data) is TensorDict else None
        for key, target, stays in targets.columns:
            value = level.get(key) if level is not None and type(key) is str else data.get(key, None)
            if value is None:
                found = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
                raise SpecError(
                    f"{type(self.part).__name__} left out the entry {key!r}, which its specs have. Found {found}."
                )
            if stays and value is given[key] and (value is targets.sources[key] or _untouched(value)):
                continue
            shape = target.shape if at is None else (len(at), *target.shape[1:])
            _check(self.part, key, value, shape, target.dtype, int(self.takes_rows))
            if key == "done" and targets is self._behind and not self.part.writes_done:
                self._check_done(value, target if at is None else target[list(at)])
            if at is None:
                target.copy_(value)
            else:
                target[list(at)] = value

    def _check_done(self, value: torch.Tensor, before: torch.Tensor) -> None:
        if not torch.equal(value, before):
            raise StateError(
                f"{type(self.part).__name__} wrote 'done' without saying so. Set writes_done = True in its class."
            )


class _Wrapped:
    """Rows as TensorDicts: of views where a transform keeps nothing, and of copies where it may.

    Args:
        spec: of one row.
        arrays: its entries, ``[n, *shape]``.
        takes_rows: whether the TensorDicts have the dimension of the rows; there is one row otherwise.
        copies: whether the entries are copied.
        device: what the TensorDicts claim as their device.
    """

    def __init__(
        self, spec: Composite, arrays: Arrays, *, takes_rows: bool, copies: bool, device: torch.device | None
    ) -> None:
        self.spec, self.copies, self.device = spec, copies, device
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        self.tensors = tensors if takes_rows else {key: tensor[0] for key, tensor in tensors.items()}
        n = len(next(iter(arrays.values()), ()))
        self._builder = TensorDictBuilder(spec, (n,) if takes_rows else (), device=device)

    def __call__(self, at: Sequence[int] | None) -> tuple[TensorDict, dict[Any, torch.Tensor]]:
        """The data of some rows, or of all of them, and its entries by key."""
        if at is not None:
            rows = list(at)
            values = {key: tensor[rows] for key, tensor in self.tensors.items()}
            return TensorDictBuilder(self.spec, (len(rows),), device=self.device)(values), values
        values = {key: tensor.clone() for key, tensor in self.tensors.items()} if self.copies else self.tensors
        return self._builder(values), values


class _Targets:
    """Where entries go behind a transform.

    Attributes:
        columns: key, memory, and whether it is that of the entry before the transform.
        sources: entries before the transform.
    """

    def __init__(self, arrays: Arrays, before: _Wrapped, *, takes_rows: bool) -> None:
        self.sources = before.tensors
        self.columns: list[tuple[Any, torch.Tensor, bool]] = []
        for key, array in arrays.items():
            target, source = torch.from_numpy(array), self.sources.get(key)
            target = target if takes_rows else target[0]
            self.columns.append((key, target, source is not None and source.data_ptr() == target.data_ptr()))


def _untouched(copy: torch.Tensor) -> bool:
    """Whether nobody has written into a copy that was made for a transform."""
    return not copy.is_inference() and copy._version == 0


def _check(part: Transform, key: Any, value: Any, shape: Any, dtype: torch.dtype, lead: int) -> None:
    """Hold what a transform returned against its spec: a copy would repeat what is smaller, and cast."""
    if value.shape != shape or value.dtype is not dtype:
        raise SpecError(
            f"{type(part).__name__} returned {key!r} of shape {tuple(value.shape[lead:])} and dtype {value.dtype}; its "
            f"specs say {tuple(shape[lead:])} and {dtype}. Change them in transform_observation_spec or a sibling."
        )


class _RowByRow:
    """Transforms that each environment has for itself."""

    def __init__(self, stages: list[Any], progress: Progress) -> None:
        self.stages, self.progress = stages, progress
        self.by_torch = any(stage.by_torch for stage in stages)
        self.steps, self.resets = stages[0].steps, stages[0].resets

    def step(self, at: Sequence[int] | None) -> bool:
        more = False
        for row in range(len(self.stages)) if at is None else at:
            self._at_work(row)
            more = self.stages[row].step(None) or more
        return more

    def reset(self, at: Sequence[int]) -> None:
        for row in at:
            self._at_work(row)
            self.stages[row].reset((0,))

    def _at_work(self, row: int) -> None:
        self.progress.words[self.progress.at] = self.progress.base + row
