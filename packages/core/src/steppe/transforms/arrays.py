"""Transforms of array environments: what they do to rows of numpy arrays, put together once."""

from __future__ import annotations

from typing import Any

import numpy as np
from tensordict import TensorDictBase

from steppe.envs import ArrayEnv, ArrayPlan
from steppe.storage import Layout, storage_problem
from steppe.transforms.hooks import EnvSpecs, Hooks

__all__ = ["ArrayProgram", "TransformedPlan"]

_Rows = dict[Any, "np.ndarray[Any, Any]"]


class TransformedPlan(ArrayPlan):
    """The plan of a transformed environment: what a step needs to know of the root is read before it."""

    def step(self, env: Any, tensordict: TensorDictBase) -> Any:
        env.array_program.load(tensordict)
        return super().step(env, tensordict)


class ArrayProgram:
    """An array environment, and transforms that change the rows it writes.

    The base writes into the caller's rows: a cast is numpy's own, made when a value is written. What the caller does
    not see is written into rows of our own.
    """

    def __init__(self, base: ArrayEnv) -> None:
        self.base = base
        self.steps: list[Any] = []
        self.resets: list[Any] = []
        self.inverses: list[Any] = []
        self.loads: list[Any] = []
        self.scratch: _Rows = {}

    @classmethod
    def of(cls, base: Any, found: list[Hooks], before: list[EnvSpecs], after: EnvSpecs) -> ArrayProgram | None:
        """Put the transforms of an array environment together; None where it, or one of them, needs TensorDicts.

        Args:
            base: the base environment.
            found: what the transforms do.
            before: the specs before each of them.
            after: the specs behind all.
        """
        if not isinstance(base, ArrayEnv) or base.array_plan is None or base.state_keys or not _fits(after):
            return None
        program = cls(base)
        read: set[Any] = set()
        changed: set[Any] = set()
        for hooks, specs in zip(found, before, strict=True):
            arrays = hooks.arrays
            if arrays is None:
                if hooks.does_nothing:
                    continue
                return None
            # A value that is read before it is cast, or is cast twice, would have to be kept in between.
            if changed.intersection(arrays.casts) or read.intersection(arrays.casts):
                return None
            if changed.intersection(arrays.writes):
                return None
            for key in arrays.hides:
                program.scratch[key] = _row(specs, key)
            read.update(arrays.reads)
            changed.update(arrays.casts, arrays.hides)
            program.steps += [arrays.step] if arrays.step is not None else []
            program.resets += [arrays.reset] if arrays.reset is not None else []
            program.loads += [arrays.load] if arrays.load is not None else []
            if arrays.inverse is not None:
                program.inverses.insert(0, arrays.inverse)
        return program

    def load(self, tensordict: TensorDictBase) -> None:
        """Take what the transforms remember from the data of a root."""
        for load in self.loads:
            load(tensordict)

    def step_into(self, action: Any, out: _Rows) -> tuple[bool, bool]:
        """Act, and write what the caller sees into ``out``."""
        for inverse in self.inverses:
            action = inverse(action)
        rows = {**out, **self.scratch} if self.scratch else out
        terminated, truncated = self.base.step_into(action, rows)
        for step in self.steps:
            terminated, truncated = step(rows, terminated, truncated)
        return terminated, truncated

    def reset_into(self, out: _Rows, seed: int | None, env_info: dict[str, Any] | None) -> None:
        """Begin an episode, and write what the caller sees into ``out``."""
        rows = {**out, **self.scratch} if self.scratch else out
        self.base.reset_into(rows, seed, env_info)
        for reset in self.resets:
            reset(rows)


def _fits(specs: EnvSpecs) -> bool:
    if specs.batch_size or (specs.device is not None and specs.device.type != "cpu"):
        return False
    kinds = (specs.observation, specs.reward, specs.done, specs.action)
    if any(storage_problem(spec) is not None for spec in kinds):
        return False
    # Without truncated flags of its own, a limit would have nowhere to go.
    names = {"done", "terminated", "truncated"}
    return [group.prefix for group in specs.groups] == [()] and set(specs.groups[0].names) <= names


def _row(specs: EnvSpecs, key: Any) -> np.ndarray[Any, Any]:
    for spec in (specs.observation, specs.reward):
        for field in Layout.of(spec, ()).fields:
            if field.key == key:
                return np.empty(field.shape, field.numpy_dtype)
    raise KeyError(key)
