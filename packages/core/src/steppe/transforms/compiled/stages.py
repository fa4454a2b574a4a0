"""What one transform does to rows: through a kernel, on single entries, or on TensorDicts made of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import Arrays, Progress, Rows
from steppe.errors import SpecError, StateError
from steppe.specs import Composite, union
from steppe.storage import TensorDictBuilder, build_td, entries
from steppe.transforms.base import Transform
from steppe.transforms.compiled.row_plan import Memory, RowPlan, Value
from steppe.transforms.compiled.transform_hooks import Hooks, RowArrays, shallow_copy

__all__ = ["RowByRow", "make_stage"]

_DONE = ("done", "terminated", "truncated")
_from_numpy = torch.from_numpy


def make_stage(plan: RowPlan, one: RowPlan, i: int, memory: Memory, rows: Rows, part: slice) -> Any:
    """Return what transform ``i`` of the chain ``one`` does to some of the rows; ``plan`` says where values are.

    Its ``step`` and ``reset`` are given the rows that are stepped or were reset; ``steps`` and ``resets`` say whether
    they do anything, ``by_torch`` whether torch does it. ``step`` returns whether it may have ended a row.
    """
    before, behind, hook = plan.values[i], plan.values[i + 1], one.hooks[i]

    def arrays(values: dict[Any, Value], root: bool) -> dict[Any, np.ndarray[Any, Any]]:
        take = memory.root if root else memory.next
        return {key: take(value)[part] for key, value in values.items() if value.in_root or not root}

    if hook.rows is not None and not hook.rows.casts:
        root, following = (RowArrays(arrays(behind, at_root), arrays(before, at_root)) for at_root in (True, False))
        return _Kernel(hook, root, following)
    four = arrays(before, True), arrays(behind, True), arrays(before, False), arrays(behind, False)
    if hook.rows is not None:
        return _Casts([key for key in hook.rows.casts if before[key].place is not behind[key].place], *four)
    if hook.pairs is not None:
        return _Pairs(one.parts[i], hook, *four)
    kind = _OnTensorDicts if hook.asks is None else _Asking
    return kind(one, i, *four, {key: array[part] for key, array in rows.root.items()}, rows)


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
        rows: Rows,
    ) -> None:
        self.rows = rows
        self.part, self.hook = plan.parts[i], plan.hooks[i]
        specs, after = plan.before[i], plan.after
        self.n = len(next(iter(following.values())))
        self.takes_rows = self.part.key_of_rows() is not None
        takes, device = self.takes_rows, plan.layout.device
        copies = self._copies = not self.part.keeps_nothing
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
        return self._write(self.hook.step(self._root_of(at), following), given, self._behind, at)

    def _root_of(self, at: Sequence[int] | None) -> TensorDictBase:
        """What a step sees of its root: nothing where it does not look at it."""
        if not self.hook.reads_root:
            size, device = self._empty
            return build_td({}, size if at is None else torch.Size([len(at)]), device)
        data = self.rows.root_data
        root: TensorDictBase = self._whole_root(at)[0] if data is None else shallow_copy(data)
        for inverse in self._inverses:
            root = inverse(root)
        return root

    def reset(self, at: Sequence[int]) -> None:
        assert self.hook.reset is not None
        some = at if self.takes_rows and len(at) != self.n else None
        whole, _ = self._whole_root(some)
        whole.set("_reset", torch.from_numpy(np.ones((*whole.batch_size, 1), bool)))
        fresh, given = self._root(some)
        self._write(self.hook.reset(whole, fresh), given, self._root_behind, some)

    def _write(
        self, data: TensorDictBase, given: dict[Any, torch.Tensor], targets: _Targets, at: Sequence[int] | None
    ) -> bool:
        """Copy what was replaced, or written into, to the rows behind the transform; whether a row may have ended."""
        ends = not self._copies  # what is written into the rows themselves is not noticed
        if not isinstance(data, TensorDictBase):
            raise SpecError(f"{type(self.part).__name__} must return a TensorDict, found {type(data).__name__}.")
        level = entries(data) if type(data) is TensorDict else None
        for key, target, source in targets.columns:
            value = level.get(key) if level is not None and type(key) is str else data.get(key, None)
            if source is not None and (value is source or (value is given[key] and _untouched(value))):
                continue
            if value is None:
                found = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
                raise SpecError(
                    f"{type(self.part).__name__} left out the entry {key!r}, which its specs have. Found {found}."
                )
            ends = ends or key in _DONE
            shape = target.shape if at is None else (len(at), *target.shape[1:])
            _check(self.part, key, value, shape, target.dtype, int(self.takes_rows))
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
                f"{type(self.part).__name__} wrote 'done' without saying so. Set writes_done = True in its class."
            )


class _Asking(_OnTensorDicts):
    """One that asks about ``next`` first, and mostly has nothing to do."""

    # The question is asked as on TensorDicts: with gradients where the caller has them.
    by_torch = False

    def step(self, at: Sequence[int] | None) -> bool:
        asks, acts = self.hook.asks, self.hook.acts
        assert asks is not None
        assert acts is not None
        found = asks(self._next.copied() if at is None or not self.takes_rows else self._next(at)[0])
        if found is None:
            return False
        at = at if self.takes_rows else None
        with torch.no_grad():
            following, given = self._next(at)  # whatever became of the first one
            return self._write(acts(self._root_of(at), following, found), given, self._behind, at)


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
        n = len(next(iter(arrays.values()), ()))
        own = {key: array if takes_rows else array[0, ...] for key, array in arrays.items()}
        self.tensors = {key: torch.from_numpy(array) for key, array in own.items()}
        self._arrays = list(own.items())
        self._flat = all(type(key) is str for key in own)
        self._builder = TensorDictBuilder(spec, (n,) if takes_rows else (), device=device)

    def __call__(self, at: Sequence[int] | None) -> tuple[TensorDict, dict[Any, torch.Tensor]]:
        """The data of some rows, or of all of them, and its entries by key."""
        if at is not None:
            rows = list(at)
            values = {key: tensor[rows] for key, tensor in self.tensors.items()}
            return TensorDictBuilder(self.spec, (len(rows),), device=self.device)(values), values
        if not self.copies:
            return self._builder(self.tensors), self.tensors
        # numpy copies in half the time that torch takes.
        values = {key: _from_numpy(array.copy()) for key, array in self._arrays}
        return self._builder(values), values

    def copied(self) -> TensorDict:
        """Copies of all rows."""
        values = {key: _from_numpy(array.copy()) for key, array in self._arrays}
        return build_td(values, self._builder.batch_size, self.device) if self._flat else self._builder(values)


class _Targets:
    """Where entries go behind a transform.

    Attributes:
        columns: key, memory, and the entry before the transform where that is in the same memory.
    """

    def __init__(self, arrays: Arrays, before: _Wrapped, *, takes_rows: bool) -> None:
        self.columns: list[tuple[Any, torch.Tensor, torch.Tensor | None]] = []
        for key, array in arrays.items():
            target, source = torch.from_numpy(array), before.tensors.get(key)
            target = target if takes_rows else target[0]
            same = source is not None and source.data_ptr() == target.data_ptr()
            self.columns.append((key, target, source if same else None))


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


class RowByRow:
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
