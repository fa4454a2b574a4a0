"""Transforms behind a batch of environments: on the rows of its storage, instead of on TensorDicts made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import (
    Ended,
    EnvBase,
    PlainRoots,
    Progress,
    RowLayout,
    Rows,
    Unknown,
    overlaid,
    overlay_reset,
)
from steppe.specs import below_next
from steppe.storage import FEW, Storage, TensorDictBuilder, build_td, entries
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs
from steppe.transforms.compiled.row_plan import Memory, RowPlan, plan_batch
from steppe.transforms.compiled.rows import BoundStages, bound_chain

__all__ = ["StagesOnBatch", "StepsInStorage"]

_from_numpy = torch.from_numpy


class StepsInStorage(Protocol):
    """What a batch has as ``in_storage``: steps that leave their data in its storage."""

    is_all: bool
    storage: Storage
    carried: list[Any]

    def step(self, tensordict: TensorDictBase) -> np.ndarray[Any, Any] | None:
        """Act, reset what ended, and return which rows that were."""
        ...

    def reset(self, rows: list[int]) -> None:
        """Reset some rows."""
        ...

    def write(self, tensordict: TensorDictBase) -> None:
        """Write what a step is given."""
        ...

    def act(self, rows: list[int] | None) -> None:
        """Act in some rows, or all, with what is in ``storage``; what ends is not reset."""
        ...


class StagesOnBatch:
    """The transforms of an environment whose base is a batch, each written for blocks of rows.

    Args:
        steps: of the batch.
        plan: the chain, for one row.

    Attributes:
        repeats: whether a transform has the batch stepped several times in one step. Each time is a trip of its own, as
            is the reset of what has ended.
    """

    @classmethod
    def of(cls, base: EnvBase, parts: list[Transform]) -> StagesOnBatch | None:
        """Put the chain together; None where the base, or one of the transforms, needs TensorDicts."""
        # Asked of the class first: of what it lacks, an environment would look for in its library.
        steps: StepsInStorage | None = getattr(base, "in_storage", None) if hasattr(type(base), "in_storage") else None
        if steps is None or not steps.is_all or len(base.batch_size) != 1:
            return None
        plan, _ = plan_batch(RowLayout.of(base), EnvSpecs.of_row(base), parts, casts_in_write=False)
        if plan is None or any(hook.converts for hook in plan.hooks) or plan.writes_over:
            return None
        if plan.repeating and steps.carried:
            return None  # the environments read more of the root than the plan knows of
        return cls(steps, plan)

    def __init__(self, steps: StepsInStorage, plan: RowPlan) -> None:
        storage = steps.storage
        self.steps, self.layout = steps, plan.layout
        arrays, n, final = storage.arrays, storage.rows[0], plan.values[-1]
        ends = any(part.writes_done for part in plan.parts)
        given: dict[Any, np.ndarray[Any, Any]] = {}
        # The workers keep track of the flags in storage, so these are not written here.
        self._flags: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for key, value in plan.values[0].items():
            source = arrays[below_next(key)]
            given[value, False] = source
            if value.in_root:
                given[value, True] = arrays[key]
            if ends and key in self.layout.done_keys:
                given[value, False] = np.zeros_like(source)
                given[value, True] = np.zeros_like(source)
                self._flags.append((given[value, False], source))
        memory = Memory(Rows.new(self.layout, n), given)
        root = {key: memory.root(value) for key, value in final.items() if value.in_root}
        following = {key: memory.next(value) for key, value in final.items()}
        self.rows = Rows(self.layout, root, following)
        memory = Memory(self.rows, given)
        self.repeats = bool(plan.repeating)
        if self.repeats:
            flags = {key: arrays[below_next(key)] for key in self.layout.done_keys if below_next(key) in arrays}
            writer = _InStorage(steps, flags, self._flags)
            rows = self.rows, self.rows
            self._bound = bound_chain([plan], lambda i: True, writer, memory, rows, Progress())
        else:
            self._stages = BoundStages([plan], lambda i: True, memory, self.rows, Progress())
        self._carried = [(key, root[key]) for key in self.layout.carried]
        self._roots: PlainRoots | type[Unknown] | None = Unknown
        self._next = list(following.items())
        self._copies = [(key, array.copy) for key, array in self._next]
        self._root = [(key, root[key]) for key, _, _ in self.layout.observations]
        self._done = following["done"].reshape(n, -1)
        self._not_ended = {name: np.zeros_like(following[name]) for name in self.layout.done_keys}
        self._flat = all(isinstance(key, str) for key in following)
        self._size = torch.Size((n,))
        self._builder = TensorDictBuilder(self.layout.next_spec, (n,), device=self.layout.device)

    def step_and_maybe_reset(self, env: EnvBase, tensordict: TensorDict) -> tuple[TensorDictBase, TensorDictBase]:
        """Act once, and reset the rows that ended; see :meth:`steppe.envs.EnvBase.step_and_maybe_reset`."""
        given = entries(tensordict)
        roots: Any = self._roots
        if roots is Unknown:
            roots = self._roots = self._plain_roots(env)
        level = None if roots is None else roots.level_of(tensordict)
        if level is None:
            env.check_batch(tensordict, "step_and_maybe_reset")
        for key, array in self._carried:
            value = given.get(key) if type(key) is str else tensordict.get(key, None)
            if value is None:
                raise KeyError(
                    f"There is no {key!r} in the data given to step. Step what reset, step_mdp or step_and_maybe_reset "
                    f"returned, with an action added to it. Found {sorted(map(str, tensordict.keys()))}."
                )
            array[...] = value.tolist() if array.size <= FEW else value.detach().numpy()
        reset: np.ndarray[Any, Any] | None = None
        if self.repeats:
            self.steps.write(tensordict)
            ended = bool(self._bound.step(()))
        else:
            self._stages.before_step()
            reset = self.steps.step(tensordict)
            for own, source in self._flags:
                own[...] = source
            ended = self._stages.step(None)
        arrays = {key: copy() for key, copy in self._copies}
        data = {key: _from_numpy(array) for key, array in arrays.items()}
        if level is not None:
            if ended:
                reset = self._reset_the_rest(reset)
            fresh = None if reset is None else overlaid(self._begin(arrays, reset), reset)
            return tensordict, roots.put(tensordict, level, data, fresh)
        following = build_td(data, self._size, self.layout.device) if self._flat else self._builder(data)
        env.put_next(tensordict, following)
        root = env.step_mdp(tensordict)
        if ended:
            reset = self._reset_the_rest(reset)
        if reset is not None:
            overlay_reset(root, self._begin(arrays, reset), reset)
        return tensordict, root

    def _plain_roots(self, env: EnvBase) -> PlainRoots | None:
        """What puts the usual data together; None where there is no such thing."""
        names = [key for key, _ in self._next]
        return PlainRoots.of(env, names) if getattr(env, "has_plain_roots", False) else None

    def _reset_the_rest(self, reset: Any) -> Any:
        """Reset the rows that a transform has ended; those that the environment ended, it has reset itself."""
        done: Any = self._done.any(-1)
        rest = done if reset is None else done & ~reset
        rows = rest.nonzero()[0].tolist()
        if rows:
            self.steps.reset(rows)
            return done if reset is None else reset | rest
        return reset

    def _begin(
        self, arrays: dict[Any, np.ndarray[Any, Any]], reset: np.ndarray[Any, Any]
    ) -> list[tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Run resets of the transforms; key, first data of the rows that were reset, and data of the others."""
        at = reset.nonzero()[0].tolist()
        if self.repeats:
            self._bound.reset(at)
        else:
            self._stages.before_reset()
            self._stages.reset(at)
        columns = [(key, array, arrays[key]) for key, array in self._root]
        # What was reset has not ended.
        return columns + [(name, self._not_ended[name], arrays[name]) for name in self.layout.done_keys]


class _InStorage:
    """The environments of a batch as a :class:`~steppe.envs.BoundWriter` of the rows of its storage.

    Args:
        steps: of the batch.
        done: arrays of the done entries of ``next`` in storage.
        flags: arrays that the transforms see in their place, and these.
    """

    def __init__(
        self,
        steps: StepsInStorage,
        done: dict[Any, np.ndarray[Any, Any]],
        flags: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]],
    ) -> None:
        self.steps, self.flags = steps, flags
        self.done, self.terminated, self.truncated = (done.get(name) for name in ("done", "terminated", "truncated"))

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        """Act, with the actions that are in storage."""
        self.steps.act(None if at is None else list(at))
        some = slice(None) if at is None else list(at)
        for own, source in self.flags:
            own[some] = source[some]
        assert self.done is not None
        if not self.done.any():
            return []
        n = len(self.done)
        flags: list[Any] = [
            [False] * n if one is None else one.reshape(n, -1).any(-1).tolist()
            for one in (self.done, self.terminated, self.truncated)
        ]
        rows = range(n) if at is None else at
        return [(row, flags[1][row], flags[2][row]) for row in rows if flags[0][row]]

    def reset(self, at: Sequence[int], env_info: Any = None) -> None:
        """Nothing: what was reset is in storage already."""
