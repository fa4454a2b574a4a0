"""StepCounter and InitTracker: the position of a step in its episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import DoneGroup
from steppe.errors import ArgumentError, SpecError
from steppe.specs import Binary, Bounded
from steppe.storage import clear_rows, find_entry
from steppe.transforms.compiled.transform_hooks import (
    EnvSpecs,
    Hooks,
    ResetOnRows,
    RowArrays,
    RowHooks,
    StepHook,
    StepOnRows,
    set_beside,
    write,
)
from steppe.transforms.env_transforms import PlannedTransform
from steppe.transforms.transform_keys import DONE_NAMES

__all__ = ["InitTracker", "StepCounter"]

_MANY = torch.iinfo(torch.int64).max
#: A hook for steps and resets.
_Hook: TypeAlias = "Callable[[TensorDictBase | None, TensorDictBase], TensorDictBase]"
_zeros, _ones, _int64, _bool = torch.zeros, torch.ones, torch.int64, torch.bool


def _one_name(owner: str, argument: str, value: object) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{owner}: {argument} is one name, used at each level with done entries; found {value!r}.")
    return value


class StepCounter(PlannedTransform):
    """Count the steps of each episode, and truncate episodes after ``max_steps``.

    At each level with done entries it adds ``step_count``, int64, of their shape (``[*B, 1]``): 0 after a reset. The
    count is an observation and a state, because a step reads it from the root.

    Args:
        max_steps: truncate after this many steps, even if the episode terminates in that step. None: only count.
        truncated_key: name of the entry to set, added if the environment has none. With ``"done"``, only ``done`` is
            set. Any other name than ``truncated``, ``terminated`` and ``done`` is an observation.
        step_count_key: name of the count.
        update_done: set ``done`` too. Otherwise the environment is not reset.

    Raises:
        SpecError: ``max_steps`` is not a whole number >= 1, or ``truncated_key`` or ``step_count_key`` is not one name.
    """

    over_time = True

    def __init__(
        self,
        max_steps: int | None = None,
        truncated_key: str = "truncated",
        step_count_key: str = "step_count",
        update_done: bool = True,
    ) -> None:
        is_number = isinstance(max_steps, (int, float)) and not isinstance(max_steps, bool)
        if max_steps is not None and not (is_number and max_steps >= 1 and max_steps == int(max_steps)):
            raise ArgumentError(f"StepCounter: max_steps is a whole number >= 1 or None, found {max_steps!r}.")
        super().__init__()
        self.max_steps = None if max_steps is None else int(max_steps)
        self.truncated_key = _one_name("StepCounter", "truncated_key", truncated_key)
        self.step_count_key = _one_name("StepCounter", "step_count_key", step_count_key)
        self.update_done = update_done

    @property
    def writes_done(self) -> bool:  # type: ignore[override]
        """Whether ``max_steps`` is set."""
        return self.max_steps is not None

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for group in specs.groups:
            done = specs.done[group.keys[0]]
            count = Bounded(0, _MANY, shape=done.shape, device=done.device, dtype=_int64)
            for spec in (specs.observation, specs.state):
                set_beside(spec, group.key(self.step_count_key), count, specs.done)
            if self.max_steps is not None and self.truncated_key not in group.names:
                where = specs.done if self.truncated_key in DONE_NAMES else specs.observation
                set_beside(where, group.key(self.truncated_key), done.clone(), specs.done)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        groups, dtypes = specs.groups, {self.step_count_key: _int64}
        if self.max_steps is not None and self.truncated_key not in DONE_NAMES:
            dtypes[self.truncated_key] = _bool
        on_rows = len(dtypes) == len(groups) == 1 and not groups[0].prefix
        rows = self._row_hooks(specs, groups[0]) if on_rows else None
        counts = [group.key(self.step_count_key) for group in groups]
        return Hooks(step=self._counts(groups), reset=_filler(groups, dtypes), reads_root=counts, rows=rows)

    def _counts(self, groups: list[DoneGroup]) -> StepHook:
        """Return the function that counts at each level; ``_row_hooks`` does the same in numpy, in place."""
        limit, levels = self.max_steps, []
        for group in groups:
            names, adds_flag = self._flags(group)
            levels.append((group.key(self.step_count_key), group.keys[0], [*map(group.key, names)], adds_flag))

        def count_all(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
            for key, done, flags, adds_flag in levels:
                count = self.kept_entry(key, td) + 1
                write(following, key, count)
                if limit is None:
                    continue
                if adds_flag:
                    write(following, flags[0], torch.zeros_like(find_entry(following, done)))
                if count.is_cpu and not (
                    count.item() >= limit if count.numel() == 1 else (count >= limit).any().item()
                ):
                    continue
                reached = count >= limit
                for flag in flags:
                    value = find_entry(following, flag)
                    write(following, flag, reached.clone() if value is None else value | reached)
            return following

        return count_all

    def _flags(self, group: DoneGroup) -> tuple[tuple[str, ...], bool]:
        """Return the names of the entries to set after ``max_steps``, and whether the first one is added."""
        if self.max_steps is None:
            return (), False
        ends = self.update_done and self.truncated_key != "done"
        return (self.truncated_key, "done") if ends else (self.truncated_key,), self.truncated_key not in group.names

    def shared_key(self) -> Any:
        return (type(self), self.max_steps, self.truncated_key, self.step_count_key, self.update_done)

    def _row_hooks(self, specs: EnvSpecs, group: DoneGroup) -> RowHooks | None:
        limit, key = self.max_steps, self.step_count_key
        if specs.done[group.names[0]].numel() != 1:
            return None
        names, adds_flag = self._flags(group)

        def bind(root: RowArrays, following: RowArrays) -> tuple[StepOnRows, ResetOnRows]:
            before, count = root[key], following[key]
            flat = count.reshape(-1)  # a view, because each row is contiguous
            flags = [following[name] for name in names]
            add, one = np.add, np.ones((), count.dtype)  # numpy takes longer to add a number of Python

            def step() -> bool:
                add(before, one, count)
                if limit is None:
                    return False
                if adds_flag:
                    flags[0][...] = False
                # Python's max is faster than numpy's for the few rows of a process.
                if max(flat.tolist()) < limit:
                    return False
                reached = count >= limit
                for flag in flags:
                    np.logical_or(flag, reached, out=flag)
                return True

            return step, partial(clear_rows, before)

        return RowHooks(bind, root_inputs=(key,), writes=names)

    def _repr_keys(self) -> Iterable[str]:
        return ("max_steps",)


class InitTracker(PlannedTransform):
    """Mark the first step of each episode.

    At each level with done entries it adds ``is_init``, bool, of their shape (``[*B, 1]``): True in the root after a
    reset, False in ``next``.

    Args:
        init_key: name of the entry.

    Raises:
        SpecError: ``init_key`` is not a single name, or the environment has an entry of that name with another shape or
            dtype.
    """

    over_time = True

    def __init__(self, init_key: str = "is_init") -> None:
        super().__init__()
        self.init_key = _one_name("InitTracker", "init_key", init_key)

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for group in specs.groups:
            key = group.key(self.init_key)
            done, old = specs.done[group.keys[0]], specs.observation.get(key, None)
            if old is not None and (old.shape, old.dtype) != (done.shape, _bool):
                raise SpecError(f"InitTracker: the environment has an entry {key!r} already; choose another init_key.")
            leaf = Binary(shape=done.shape, device=done.device, dtype=_bool)
            set_beside(specs.observation, key, leaf, specs.done)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        groups, name = specs.groups, self.init_key
        at_root = len(groups) == 1 and not groups[0].prefix
        return Hooks(
            step=_filler(groups, {name: _bool}),
            reset=_filler(groups, {name: _bool}, fill=_ones),
            reads_root=False,
            rows=RowHooks(self._bind_rows, writes=[name]) if at_root else None,
        )

    def shared_key(self) -> Any:
        return (type(self), self.init_key)

    def _bind_rows(self, root: RowArrays, following: RowArrays) -> tuple[StepOnRows, ResetOnRows]:
        mark, after = root[self.init_key], following[self.init_key]

        def step() -> bool:
            after[...] = False
            return False

        def reset(at: Sequence[int]) -> None:
            for row in at:
                mark[row] = True

        return step, reset

    def _repr_keys(self) -> Iterable[str]:
        return ("init_key",)


def _filler(
    groups: list[DoneGroup], dtypes: dict[str, torch.dtype], fill: Callable[..., torch.Tensor] = _zeros
) -> _Hook:
    """Return a hook that writes zeros (or ones) of the shape of the done entries at each level, by name and dtype."""
    keys = [(group.key(name), group.keys[0], dtype) for group in groups for name, dtype in dtypes.items()]

    def fill_all(_: TensorDictBase | None, data: TensorDictBase) -> TensorDictBase:
        for key, done, dtype in keys:
            model = find_entry(data, done)
            write(data, key, fill(model.shape, dtype=dtype, device=model.device))
        return data

    return fill_all
