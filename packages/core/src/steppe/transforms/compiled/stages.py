"""Stages: one transform of a chain on rows, as functions of arrays or on TensorDicts of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import Progress, Rows
from steppe.errors import SpecError, StateError
from steppe.specs import CPU, Composite, union
from steppe.storage import TensorDictBuilder, build_td, entries, shallow_copy
from steppe.transforms.base import Transform
from steppe.transforms.compiled.entry_kernel import EntryKernel, bind_entries, check_result, without_gradients
from steppe.transforms.compiled.row_plan import Memory, RowPlan, Value
from steppe.transforms.compiled.transform_hooks import Array, Bind, Hooks, ResetOnRows, RowArrays
from steppe.transforms.transform_keys import DONE_NAMES, Key

__all__ = ["Stage", "make_stage", "row_by_row"]

_from_numpy = torch.from_numpy

_Arrays: TypeAlias = "dict[Key, Array]"
_Tensors: TypeAlias = "dict[Key, torch.Tensor]"
#: An entry behind a transform: key, memory, and the entry before the transform if it is in the same memory.
_Column: TypeAlias = "tuple[Key, torch.Tensor, torch.Tensor | None]"


class Stage(NamedTuple):
    """The functions of one transform for rows.

    Attributes:
        step: transforms ``next`` of the rows that were stepped (None: all), and returns whether a row may have ended.
            None if there is nothing to do.
        reset: the same for the root of the rows that were reset.
        written: arrays of ``next`` that ``step`` writes in all rows, also in those that were not stepped.
    """

    step: Callable[[Sequence[int] | None], bool] | None
    reset: ResetOnRows | None
    written: Sequence[Array] = ()


def make_stage(plan: RowPlan, chain: RowPlan, i: int, memory: Memory, part: slice) -> Stage:
    """Return the stage of transform ``i`` for a part of the rows.

    Args:
        plan: the plan whose values have the memory.
        chain: the plan of the transform. If each row has its own chain, it is the chain of this row.
        i: position of the transform.
        memory: the arrays of the values.
        part: the rows that the transform changes.
    """
    before, behind, hook = plan.values[i], plan.values[i + 1], chain.hooks[i]

    def arrays(values: dict[Key, Value], root: bool) -> _Arrays:
        array_of = memory.root if root else memory.next
        return {key: array_of(value)[part] for key, value in values.items() if value.in_root or not root}

    levels = arrays(before, True), arrays(behind, True), arrays(before, False), arrays(behind, False)
    bind = _bind_of(chain.parts[i], hook, before, behind)
    if bind is None:
        # Functions of arrays do without torch.no_grad(), which saves time.
        stage = _OnTensorDicts(chain, i, levels, memory.rows, part)
        step_on, reset_on = without_gradients(stage.step), without_gradients(stage.reset)
        return Stage(step_on if hook.step else None, reset_on if hook.reset else None)
    root, root_behind, following, after = levels
    step, reset = bind(RowArrays(root_behind, root), RowArrays(after, following))
    over = {*chain.written(i), *DONE_NAMES}
    written = [after[key] for key, value in behind.items() if key in over or before.get(key) is not value]
    # The function runs on all rows.
    return Stage(None if step is None else lambda _: step(), reset, written=written)


def row_by_row(stages: Sequence[Stage], progress: Progress) -> Stage:
    """Join the stages of a transform in several environments, each of which has its own chain, into one stage."""
    steps = [stage.step or _no_step for stage in stages]
    resets = [stage.reset or _no_reset for stage in stages]

    def note(row: int) -> None:
        """Note the row at work, for errors."""
        progress.words[progress.at] = progress.base + row

    def step(at: Sequence[int] | None) -> bool:
        more = False
        for row in range(len(steps)) if at is None else at:
            note(row)
            more = steps[row](None) or more
        return more

    def reset(at: Sequence[int]) -> None:
        for row in at:
            note(row)
            resets[row]((0,))

    return Stage(step, reset)


def _no_step(at: Sequence[int] | None) -> bool:
    return False


def _no_reset(at: Sequence[int]) -> None:
    pass


def _bind_of(part: Transform, hook: Hooks, before: dict[Key, Value], behind: dict[Key, Value]) -> Bind | None:
    """Return the ``bind`` of a transform that is written for rows or for single entries; None for TensorDicts."""
    if hook.rows is not None:
        # Where the two places are the same, numpy has cast the entry as it was written.
        casts = [(key, key) for key in hook.rows.casts if before[key].place is not behind[key].place]
        return EntryKernel(casts, _cast) if casts else hook.rows.bind or (lambda root, following: (None, None))
    if hook.pairs is None or part.writes_done:
        return None
    return bind_entries(part, hook.pairs)


def _cast(key: Key, source: Array, target: Array) -> Callable[[], object]:
    """Return a function that casts an entry."""
    return partial(np.copyto, target, source, casting="unsafe")


class _OnTensorDicts:
    """The hooks of any other transform, on TensorDicts of the rows; entries that it replaces are copied back.

    A transform without a shared key has one row, and its TensorDicts have the batch size of the environment, ``[]``.
    """

    def __init__(
        self, plan: RowPlan, i: int, levels: tuple[_Arrays, _Arrays, _Arrays, _Arrays], rows: Rows, part: slice
    ) -> None:
        root, root_behind, following, behind = levels
        self.rows = rows
        self.part, self.hook = plan.parts[i], plan.hooks[i]
        specs, after = plan.before[i], plan.after
        self.n = len(next(iter(following.values())))
        self.takes_rows = self.part.key_of_rows() is not None
        copies = self._copies = not self.part.keeps_nothing

        def wrapped(spec: Composite, arrays: _Arrays) -> _Wrapped:
            return _Wrapped(spec, arrays, takes_rows=self.takes_rows, copies=copies, device=plan.layout.device)

        self._next = wrapped(union(specs.observation, specs.reward, specs.done), following)
        self._root = wrapped(union(specs.observation, specs.done), root)
        whole_root = {key: array[part] for key, array in rows.root.items()}
        self._whole_root = wrapped(union(after.observation, after.done, after.action), whole_root)
        self._behind, self._root_behind = self._next.columns(behind), self._root.columns(root_behind)
        # A step receives the root as the environment before the transform does.
        self._inverses = [
            inverse for hook in reversed(plan.hooks[i:]) if hook.converts and (inverse := hook.inverse) is not None
        ]
        kept = [hook for hook in reversed(plan.hooks[i:]) if hook.rows is not None and hook.rows.kept]
        self._memories = [hook.inverse for hook in kept if hook.inverse is not None]
        self._empty = torch.Size([self.n] if self.takes_rows else []), plan.layout.device

    def step(self, at: Sequence[int] | None) -> bool:
        assert self.hook.step is not None
        at = at if self.takes_rows else None
        following, values = self._next(at)
        return self._write(self.hook.step(self._root_of(at), following), values, self._behind, at)

    def _root_of(self, at: Sequence[int] | None) -> TensorDictBase:
        """Return the root for a step; without entries if the transform does not read it."""
        if not self.hook.reads_root:
            size, device = self._empty
            return build_td({}, size if at is None else torch.Size([len(at)]), device)
        data = self.rows.root_data
        root: TensorDictBase = self._whole_root(at)[0] if data is None else shallow_copy(data)
        for inverse in self._inverses if self.hook.reads_all else self._memories:
            root = inverse(root)
        # Rows hold the other entries of the root only if a transform reads all of them.
        return root if self.hook.reads_all else root.select(*self.hook.root_inputs)

    def reset(self, at: Sequence[int]) -> None:
        assert self.hook.reset is not None
        some = at if self.takes_rows and len(at) != self.n else None
        whole: TensorDictBase = self._whole_root(some)[0]
        for restore in self._memories:
            whole = restore(whole)
        whole.set("_reset", torch.ones((*whole.batch_size, 1), dtype=torch.bool, device=CPU))
        fresh, values = self._root(some)
        self._write(self.hook.reset(whole, fresh), values, self._root_behind, some)

    def _write(self, data: TensorDictBase, before: _Tensors, targets: list[_Column], at: Sequence[int] | None) -> bool:
        """Copy entries that the transform has replaced or written into; return whether a row may have ended.

        Args:
            data: the result of the hook.
            before: the entries of its argument.
            targets: the memory behind the transform.
            at: the rows; None for all.
        """
        ends = not self._copies  # a transform without copies may have written into the rows
        if not isinstance(data, TensorDictBase):
            raise SpecError(f"{type(self.part).__name__} must return a TensorDict, found {type(data).__name__}.")
        level = entries(data) if type(data) is TensorDict else None
        for key, target, source in targets:
            value = level.get(key) if level is not None and isinstance(key, str) else data.get(key, None)
            if source is not None and (value is source or (value is before[key] and _untouched(value))):
                continue
            if value is None:
                names = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
                raise SpecError(
                    f"{type(self.part).__name__} left out the entry {key!r}, which its specs have. Found {names}."
                )
            ends = ends or key in DONE_NAMES
            shape = target.shape if at is None else (len(at), *target.shape[1:])
            check_result(self.part, key, value, shape, target.dtype, int(self.takes_rows))
            if key == "done" and targets is self._behind and not self.part.writes_done:
                self._check_done(value, target if at is None else target[list(at)])
            if at is None:
                target.copy_(value)
            else:
                target[list(at)] = value
        return ends and self.part.writes_done

    def _check_done(self, value: torch.Tensor, before: torch.Tensor) -> None:
        if not torch.equal(value, before):
            raise StateError(
                f"{type(self.part).__name__} wrote 'done' although its writes_done is False. Set writes_done = True in "
                "its class."
            )


class _Wrapped:
    """Make TensorDicts of rows: of views if the transform keeps no references, otherwise of copies.

    Args:
        spec: spec of one row.
        arrays: its entries, ``[n, *shape]``.
        takes_rows: whether the TensorDicts have the dimension of rows; otherwise there is one row.
        copies: whether to copy the entries.
        device: device of the TensorDicts.
    """

    def __init__(
        self, spec: Composite, arrays: _Arrays, *, takes_rows: bool, copies: bool, device: torch.device | None
    ) -> None:
        self.spec, self.copies, self.device, self._takes_rows = spec, copies, device, takes_rows
        n = len(next(iter(arrays.values()), ()))
        columns = {key: array if takes_rows else array[0, ...] for key, array in arrays.items()}
        self.tensors = {key: torch.from_numpy(array) for key, array in columns.items()}
        self._arrays = list(columns.items())
        self._builder = TensorDictBuilder(spec, (n,) if takes_rows else (), device=device)

    def __call__(self, at: Sequence[int] | None) -> tuple[TensorDict, _Tensors]:
        """Return the data of some rows (None: all) and its entries by key."""
        if at is not None:
            rows = list(at)
            values = {key: tensor[rows] for key, tensor in self.tensors.items()}
            return TensorDictBuilder(self.spec, (len(rows),), device=self.device)(values), values
        if not self.copies:
            return self._builder(self.tensors), self.tensors
        # numpy copies in half the time that torch takes.
        values = {key: _from_numpy(array.copy()) for key, array in self._arrays}
        return self._builder(values), values

    def columns(self, behind: _Arrays) -> list[_Column]:
        """Return the memory of the entries behind the transform."""
        columns: list[_Column] = []
        for key, array in behind.items():
            target, source = torch.from_numpy(array if self._takes_rows else array[0, ...]), self.tensors.get(key)
            same = source is not None and source.data_ptr() == target.data_ptr()
            columns.append((key, target, source if same else None))
        return columns


def _untouched(copy: torch.Tensor) -> bool:
    """Whether the copy that a transform received has not been written into."""
    return not copy.is_inference() and copy._version == 0
