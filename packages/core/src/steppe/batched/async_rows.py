"""Rows of a pool: which environments data is for, how rows are stacked, and rows of unequal environments."""

from __future__ import annotations

from functools import partial
from typing import Any
from weakref import proxy

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, lazy_stack

from steppe.batched.messages import stack_rows
from steppe.batched.report import KINDS
from steppe.envs import step_mdp
from steppe.errors import ActionError, SpecError
from steppe.specs import Composite, StackedComposite

__all__ = ["UnequalRows", "indices_of", "rows_of", "stack_as"]


def indices_of(value: Any, n: int, what: str) -> list[int]:
    """The environments that an ``env_index`` names.

    Args:
        value: an int, or a list, array, tensor or NonTensorData of ints.
        n: how many environments there are.
        what: the call, for errors.

    Raises:
        SpecError: it names no environment, one that is not there, or one twice.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    found = [value] if not isinstance(value, (list, tuple, range)) else list(value)
    while found and all(isinstance(one, list) and len(one) == 1 for one in found):
        found = [one[0] for one in found]
    found = [one.item() if isinstance(one, torch.Tensor) and one.numel() == 1 else one for one in found]
    if not found or any(isinstance(one, bool) or not hasattr(one, "__index__") for one in found):
        raise SpecError(f"{what}: env_index is a whole number or a list of them, found {value!r}.")
    rows = [one.__index__() for one in found]
    if any(not 0 <= row < n for row in rows):
        raise SpecError(f"{what}: env_index must lie in 0..{n - 1}, found {rows}.")
    if len(set(rows)) != len(rows):
        raise SpecError(f"{what}: an environment may be named once, found {rows}.")
    return rows


def rows_of(
    tensordict: TensorDictBase | None, env_index: Any, n: int, what: str
) -> tuple[list[int], list[TensorDictBase | None]]:
    """Which environments data is for, and a copy of the data of each, without ``"env_index"`` and masks."""
    index = env_index
    if index is None and tensordict is not None:
        index = tensordict.get("env_index", None)
        if index is None and tensordict.batch_size != (n,):
            raise SpecError(
                f"{what}: data of batch size {tuple(tensordict.batch_size)} does not say which environments it is for. "
                f'Give env_index=..., or write td["env_index"]. Only data of all {n} environments needs neither.'
            )
    rows = list(range(n)) if index is None else indices_of(index, n, what)
    if tensordict is None:
        return rows, [None] * len(rows)
    size = tuple(tensordict.batch_size)
    if size != (len(rows),) and not (size == () and len(rows) == 1):
        raise SpecError(
            f"{what}: data of batch size {size} cannot be divided among {len(rows)} environments, {rows}: it must be "
            f"[{len(rows)}]."
        )
    data = tensordict.exclude("env_index", "_reset", "_step").detach()
    parts = [data] if size == () else list(data.unbind(0))
    return rows, [_copy(part) for part in parts]


def _copy(row: TensorDictBase) -> TensorDictBase:
    copied = row.clone()
    if copied.is_locked:
        copied.unlock_()
    return copied


def stack_as(stack: str, rows: list[TensorDictBase]) -> TensorDictBase:
    """Stack rows along a new first dimension.

    Raises:
        SpecError: ``stack`` is ``"dense"`` and the rows differ.
    """
    if stack == "lazy":
        lazy: LazyStackedTensorDict = lazy_stack(rows, 0)
        return lazy
    if stack == "maybe_dense":
        return stack_rows(rows)
    try:
        return torch.stack(rows, 0)
    except (RuntimeError, KeyError, ValueError) as error:
        raise SpecError(
            f"The rows differ, and cannot become one contiguous TensorDict: {error}. Send rows with the same entries, "
            'or make the pool with stack="maybe_dense" or stack="lazy".'
        ) from error


class UnequalRows:
    """What a pool knows of environments whose specs differ.

    It takes the place of the checks that are made of equal rows: each environment checks its own.

    Args:
        specs: ``{kind: spec}`` of each environment.
        stack: how rows are stacked.
    """

    def __init__(self, specs: list[dict[str, Composite]], stack: str) -> None:
        self.specs = specs
        self.stack = stack
        self.keys = [{kind: _leaves(spec[kind]) for kind in KINDS} for spec in specs]

    def describe(self, pool: Any) -> None:
        """Give the pool its specs, and random actions that are drawn row by row."""
        state = pool.__dict__
        found = state.setdefault("_specs", {})
        for kind in KINDS:
            each = [spec[kind] for spec in self.specs]
            if all(spec == each[0] for spec in each):
                pool._assign_spec(kind, each[0].expand(torch.Size((len(each), *each[0].shape))))
                continue
            found[kind] = StackedComposite(*(spec.clone() for spec in each)).lock_()
        pool._specs_changed()
        # Entries that cannot be stacked have no spec of their own, but a key.
        state["_spec_cache"].update({f"{kind}_keys": self.common(kind) for kind in KINDS})
        # Nothing of the batch is left to hold data against: environments do that.
        state["_validated"] = {"reset", "step"}
        state["rand_action"] = partial(_rand_action, proxy(pool), self)

    def common(self, kind: str) -> list[Any]:
        """The keys of a kind that all environments have."""
        first, *others = (keys[kind] for keys in self.keys)
        found = [key for key in first if all(key in keys for keys in others)]
        return sorted(found, key=lambda key: (isinstance(key, tuple), str(key)))

    def check_action(self, tensordict: TensorDictBase) -> None:
        """Refuse a batch in which an action is missing or does not fit."""
        for row, td in enumerate(tensordict.unbind(0)):
            self.check_row(row, td)

    def check_row(self, row: int, td: TensorDictBase) -> None:
        """Refuse data of an environment in which an action is missing or does not fit."""
        for key in self.keys[row]["action"]:
            value, leaf = td.get(key, None), self.specs[row]["action"][key]
            if value is None:
                raise ActionError(
                    f"There is no action at {key!r} in the data of environment {row}. "
                    f"Found {sorted(map(str, td.keys()))}."
                )
            if leaf.dtype is not None and (value.shape != leaf.shape or value.dtype is not leaf.dtype):
                raise ActionError(
                    f"The action {key!r} of environment {row} must have shape {tuple(leaf.shape)} and dtype "
                    f"{leaf.dtype}, found {tuple(value.shape)} and {value.dtype}."
                )

    def complete(self, following: TensorDictBase) -> None:
        """Nothing: environments have done it."""

    def zero(self, row: int) -> TensorDict:
        """Zeros of what an environment returns."""
        out = TensorDict({}, [])
        for kind in ("observation", "reward", "done"):
            out.update(self.specs[row][kind].zero())
        return out

    def step_mdp(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The root of the next step, row by row: of all environments, or of those of ``"env_index"``."""
        index, n = tensordict.get("env_index", None), len(self.keys)
        envs = list(range(n)) if index is None else indices_of(index, n, "step_mdp")
        rows = []
        for env, td in zip(envs, tensordict.unbind(0) if tensordict.batch_size else [tensordict], strict=True):
            keys = self.keys[env]
            kept = {*keys["state"], *keys["observation"]}
            rewards = [key for key in keys["reward"] if key not in kept]
            rows.append(
                step_mdp(
                    td,
                    exclude_reward=bool(rewards),
                    reward_keys=rewards,
                    done_keys=keys["done"],
                    exclude_action=False,
                    action_keys=[],
                )
            )
        return stack_as(self.stack, rows) if tensordict.batch_size else rows[0]


def _leaves(spec: Composite) -> list[Any]:
    return list(spec.keys(include_nested=True, leaves_only=True))


def _rand_action(pool: Any, unequal: UnequalRows, tensordict: TensorDictBase | None = None) -> TensorDictBase:
    n = len(unequal.specs)
    given = tensordict if tensordict is not None else TensorDict({}, batch_size=[n])
    rows = given.tensordicts if isinstance(given, LazyStackedTensorDict) else [row.copy() for row in given.unbind(0)]
    for row, spec in zip(rows, unequal.specs, strict=True):
        row.update(spec["action"].rand(generator=pool.__dict__["_generator"]))
    # Actions that differ have no place in a contiguous TensorDict: a new one is returned for it.
    return given if isinstance(given, LazyStackedTensorDict) else stack_as(unequal.stack, rows)
