"""Pipeline: the hooks of all transforms of an environment, in the order in which they run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ArrayEnv, EnvBase, written_by_policy
from steppe.errors import SpecError
from steppe.specs import Composite, every_leaf_key
from steppe.storage import build_td, copy_names, entries, storage_problem
from steppe.transforms.base import Transform
from steppe.transforms.compiled.row_plan import RowPlan, plan_batch, row_problem
from steppe.transforms.compiled.transform_hooks import (
    BeforeReset,
    EnvSpecs,
    Hooks,
    InverseHook,
    ResetHook,
    StepHook,
    shallow_copy,
)
from steppe.transforms.compose import Compose
from steppe.transforms.transform_keys import Key, names_of

__all__ = ["Pipeline", "leaves", "version"]

#: Entries, each with its version, to see later whether a transform has replaced it or written into it.
_Seen: TypeAlias = "list[tuple[torch.Tensor | None, int]]"


def leaves(transform: Transform) -> Iterator[Transform]:
    """Yield the transforms of a chain in order, with the parts of a nested Compose in its place.

    A subclass of Compose that overrides what it does with its parts is one transform.
    """
    methods = ("_call", "_step", "_reset", "_inv_call", "_reset_env_preprocess", "transform_specs")
    if isinstance(transform, Compose) and not any(transform._writes(name, Compose) for name in methods):
        for part in transform:
            yield from leaves(part)
    else:
        yield transform


class Pipeline:
    """The hooks around each call of the base environment, collected once.

    A transform receives the root as the environment before it does: after its own inverse and those of later
    transforms. Each of these versions of the root is a *view*, and there is one for each inverse.

    Attributes:
        base_specs: specs of the base environment.
        specs: specs behind all transforms.
        inverses, before_resets: hooks in the order in which they run, the last transform first.
        steps, resets: hooks in the order in which they run, each with the number of its view.
        row_plan: the plan for rows of arrays; None if the base or a transform needs TensorDicts.
        row_problem: why ``row_plan`` is None.
        passed_through_keys: keys that the environment with all transforms passes through; see
            :attr:`EnvBase.passed_through_keys`.
        two_trips: whether a step and its resets take two round trips, because a transform decides which episodes end.
        plain_step: whether the ``step`` of the base is that of EnvBase, so that ``_whole_step`` may replace it.
        by_rows: whether steps and resets of some rows may pass the data of these rows only through the transforms.
        hidden: observations of the base that a transform replaces; the base does not receive them.
    """

    def __init__(self, base: EnvBase, transform: Transform) -> None:
        specs = self.base_specs = EnvSpecs.of(base)
        all_hooks: list[Hooks] = []
        before: list[EnvSpecs] = []
        parts = list(leaves(transform))
        for part in parts:
            before.append(specs)
            all_hooks.append(part.hooks_in(specs))
            specs = part.specs_behind(specs)
        self.specs = specs
        self.base_writer = base.row_writer
        self.row_plan: RowPlan | None = None
        self.row_problem = self._plan_rows(base, list(leaves(transform)), all_hooks, before, specs)
        self.base_version = base.specs_version
        self.inverses: list[InverseHook] = []
        self.before_resets: list[BeforeReset] = []
        self.after_step_mdp = [part._post_step_mdp_hooks for part in parts if part.changes_next_root]
        self.steps: list[tuple[StepHook, int]] = []
        self.resets: list[tuple[ResetHook, int]] = []
        self.instead_of_reset: BeforeReset | None = None
        for hooks in reversed(all_hooks):
            if hooks.inverse is not None:
                self.inverses.append(hooks.inverse)
            if hooks.before_reset is not None:
                self.before_resets.append(hooks.before_reset)
            if hooks.step is not None:
                self.steps.insert(0, (hooks.step, len(self.inverses)))
            if hooks.reset is not None:
                self.resets.insert(0, (hooks.reset, len(self.before_resets)))
        for position, hooks in enumerate(all_hooks):
            if hooks.instead_of_reset is not None:
                if any(earlier.reset is not None for earlier in all_hooks[:position]):
                    raise SpecError(
                        "A transform that replaces resets of the environment must be the first one: insert it with "
                        "env.insert_transform(0, transform)."
                    )
                self.instead_of_reset = hooks.instead_of_reset
        self.plain_step = type(base).step in (EnvBase.step, ArrayEnv.step) and "step" not in vars(base)
        self.writes_step = transform.writes_step
        same_batch = self.specs.batch_size == self.base_specs.batch_size
        self.by_rows = same_batch and not transform.needs_all_rows
        self.may_end = transform.writes_done
        base_cannot_reset = (
            self.writes_step
            or not same_batch
            or bool(self.after_step_mdp)
            or _leaf_keys(self.specs.done) != _leaf_keys(self.base_specs.done)
            # The base takes two round trips itself, and a plain step is cheaper.
            or (
                type(base).step_and_maybe_reset is EnvBase.step_and_maybe_reset
                and type(base)._step_and_maybe_reset is EnvBase._step_and_maybe_reset
            )
        )
        passed = [key for hooks in all_hooks for key in hooks.passed_through]
        states = _leaf_keys(self.specs.state)
        self._passed_by_base = base.passed_through_keys
        self.passed_through_keys = tuple(
            key for key in dict.fromkeys((*self._passed_by_base, *passed)) if key in states
        )
        self.two_trips = base_cannot_reset or (transform.writes_done and not transform.only_ends)
        known = _outputs(self.base_specs)
        foreign = (known - _leaf_keys(self.base_specs.state)) | (_outputs(self.specs) - known - _leaf_keys(specs.state))
        self._foreign = [*foreign, "next"]
        self._base_outputs = [*every_leaf_key(self.base_specs.observation), *_leaf_keys(self.base_specs.done)]
        # Whether done entries are only at the root, and all entries are tensors of fixed shapes at the root.
        self.flat = (
            [group.prefix for group in self.specs.groups] == [()]
            and all(type(key) is str for key in self._base_outputs)
            and all(
                type(key) is str
                for kind in (self.specs.observation, self.specs.done)
                for key in kind.keys(include_nested=True, leaves_only=True)
            )
            and all(
                storage_problem(kind) is None
                for specs in (self.base_specs, self.specs)
                for kind in (specs.observation, specs.reward, specs.done)
            )
        )
        self._done_keys = [group.key("done") for group in self.specs.groups if "done" in group.names]
        self._refuse_changed_states(parts)
        _refuse_reshaped_states(parts, all_hooks, [*before, specs])
        self._watched = self._keys_of_base(parts)
        self.hidden: set[Key] = set()
        for key in [key for key in self._watched if self._is_replaced(key, parts)]:
            self._hide(key)
        if all(hooks.rows is not None for hooks in all_hooks):
            self._watched = []  # RowHooks declare all entries that they write

    @property
    def shows_all(self) -> bool:
        """Whether the base may receive the caller's data itself and write ``next`` into it."""
        return not self.inverses and not self.hidden

    def _refuse_changed_states(self, parts: list[Transform]) -> None:
        """Raise SpecError if a transform changes a state that each step reads, and has no inverse for it."""
        undone = _declared(parts, "in_keys_inv")
        if self.inverses and not undone:
            return  # the inverses may write any entry
        for key, state in self.specs.state.items(include_nested=True, leaves_only=True):
            observed = self.specs.observation.get(key, None)
            if observed is None or state is None or key in undone or self.base_specs.state.get(key, None) is None:
                continue
            if (observed.shape, observed.dtype) != (state.shape, state.dtype):
                raise SpecError(
                    f"{key!r} is a state, which each step reads from the data, and a transform makes it "
                    f"{tuple(observed.shape)} of {observed.dtype} where the environment needs {tuple(state.shape)} of "
                    f"{state.dtype}. Give the transform an inverse, in_keys_inv=[{key!r}], or other out_keys."
                )

    def _keys_of_base(self, parts: list[Transform]) -> list[Key]:
        """Return the observations that the base may read from the root although they are no states."""
        undone = _declared(parts, "in_keys_inv")
        known = _leaf_keys(self.base_specs.observation) - _leaf_keys(self.base_specs.state) - undone
        if self.base_writer is not None:
            known &= set(self.base_writer.layout.carried)  # it reads no others
        return sorted(known, key=str)

    def _is_replaced(self, key: Key, parts: list[Transform]) -> bool:
        after = self.specs.observation.get(key, None)
        return after != self.base_specs.observation[key] or key in _declared(parts, "out_keys", "in_keys")

    def _hide(self, key: Key) -> None:
        self.hidden.add(key)
        self._watched.remove(key)

    def _seen(self, data: TensorDictBase) -> _Seen:
        """Return the watched observations, to compare them after the transforms have run."""
        return [(value := _entry(data, key), version(value)) for key in self._watched]

    def _note_replaced(self, seen: _Seen, data: TensorDictBase) -> None:
        """Hide watched observations that a transform has replaced or written into."""
        for key, (value, before) in zip(list(self._watched), seen, strict=True):
            after = _entry(data, key)
            if value is not None and after is not None and (after is not value or version(after) != before):
                self._hide(key)

    def _plan_rows(
        self, base: EnvBase, parts: list[Transform], all_hooks: list[Hooks], before: list[EnvSpecs], after: EnvSpecs
    ) -> str | None:
        """Set ``row_plan``; return the reason if there is none."""
        writer = self.base_writer
        if writer is None:
            return base.row_problem
        if base.batch_size:
            casts = writer.own_rows is None
            self.row_plan, problem = plan_batch(writer.layout, EnvSpecs.of_row(base), parts, casts_in_write=casts)
            return problem
        behind_each = [*before[1:], after] if parts else []
        for part, hooks, specs, behind in zip(parts, all_hooks, before, behind_each, strict=True):
            problem = row_problem(part, hooks, specs, behind)
            if problem is not None:
                return problem
        plan = RowPlan(writer.layout, parts, all_hooks, before, after)
        problem = plan.problem()
        if problem is None:
            self.row_plan = plan
        return problem

    def views(self, tensordict: TensorDictBase) -> list[TensorDictBase]:
        """Return the root as the caller passed it and after each inverse; the last one is for the base."""
        views = [tensordict]
        for inverse in self.inverses:
            tensordict = inverse(shallow_copy(tensordict))
            views.append(tensordict)
        return views

    def reset_views(self, tensordict: TensorDictBase | None) -> list[TensorDictBase | None]:
        """Return the argument of ``reset`` as the caller passed it and after each ``before_reset``."""
        views = [tensordict]
        for before in self.before_resets:
            tensordict = before(None if tensordict is None else shallow_copy(tensordict))
            views.append(tensordict)
        return views

    def outward(self, views: list[TensorDictBase], following: TensorDictBase) -> TensorDictBase:
        """Transform the data of a step."""
        seen = self._seen(following) if self._watched else None
        for step, view in self.steps:
            following = step(views[view], following)
        if seen is not None:
            self._note_replaced(seen, following)
        return following

    def outward_reset(self, views: list[TensorDictBase | None], fresh: TensorDictBase) -> TensorDictBase:
        """Transform the data of a reset."""
        seen = self._seen(fresh) if self._watched else None
        for reset, view in self.resets:
            fresh = reset(views[view], fresh)
        if seen is not None:
            self._note_replaced(seen, fresh)
        return fresh

    def done_entries(self, following: TensorDictBase) -> dict[Key, torch.Tensor]:
        """Return the entries ``done`` of a step by key."""
        return {key: following.get(key, None) for key in self._done_keys}

    def without_outputs(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a copy of the root without observations, rewards and done entries, except states of the base.

        These entries are transformed or unknown to the base, which might take them for its own.
        """
        return self._with_written(tensordict, tensordict.exclude(*self._foreign))

    def base_outputs(self, root: TensorDictBase) -> TensorDictBase:
        """Return a copy of a root of the base with its observations and done entries only."""
        if self.flat and type(root) is TensorDict:
            level = entries(root)
            return build_td({key: level[key] for key in self._base_outputs}, root.batch_size, root.device)
        return root.select(*self._base_outputs, strict=False)

    def versions(self, outputs: TensorDictBase, names: list[str]) -> dict[str, tuple[torch.Tensor, int]] | None:
        """Return outputs of a reset of the base with their versions, to see which ones the transforms leave unchanged.

        Args:
            outputs: the outputs.
            names: entries that the transforms left unchanged in the step before.

        Returns:
            None for data with nested entries.
        """
        if not self.flat or type(outputs) is not TensorDict:
            return None
        level = entries(outputs)
        return {name: (level[name], version(level[name])) for name in names if name in level}

    def root(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a copy of the root that the base may write into, without hidden entries.

        Its ``next`` has only the entries that a policy has written there for the base to pass through.
        """
        return self._with_written(tensordict, self._without(tensordict, ("next", *self.hidden)))

    def _with_written(self, tensordict: TensorDictBase, root: TensorDictBase) -> TensorDictBase:
        written = written_by_policy(tensordict, self._passed_by_base) if self._passed_by_base else None
        return root if written is None else root.set("next", written)

    def shown(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the root without hidden entries; it must not be written into."""
        return self._without(tensordict, (*self.hidden,))

    def explain_hidden(self, error: KeyError) -> None:
        """Replace an error of the base about a hidden entry.

        Raises:
            SpecError: the error is about a hidden entry; the text says why it is missing.
        """
        for key in sorted(self.hidden, key=str):
            if names_of(key)[-1] in str(error):
                raise SpecError(
                    f"The environment reads {key!r} in a step, but a transform has replaced this entry, so the "
                    "environment does not receive it. Declare the entry in the state_spec of the environment, and give "
                    f"the transform an inverse, in_keys_inv=[{key!r}], or other out_keys."
                ) from error

    @staticmethod
    def _without(tensordict: TensorDictBase, keys: tuple[Key, ...]) -> TensorDictBase:
        if type(tensordict) is not TensorDict or not all(type(key) is str for key in keys):
            return tensordict.exclude(*keys)
        level = {name: value for name, value in entries(tensordict).items() if name not in keys}
        return copy_names(tensordict, build_td(level, tensordict.batch_size, tensordict.device))


def _refuse_reshaped_states(parts: list[Transform], hooks: list[Hooks], around: list[EnvSpecs]) -> None:
    """Raise SpecError if a transform reshapes an entry that an earlier one reads from the root, without an inverse.

    Args:
        parts: the transforms.
        hooks: the hooks of each of them.
        around: the specs before each of them, and behind the last one.
    """
    for i, key in _states_added(around):
        leaves_behind = [specs.observation.get(key, None) for specs in around[i + 1 :]]
        needed = around[-1].state.get(key, None)
        if needed is None or any(leaf is None for leaf in leaves_behind):
            continue
        shapes = [tuple(leaf.shape) for leaf in leaves_behind if leaf is not None]
        if shapes[-1] == tuple(needed.shape):
            continue
        if any(hook.inverse is not None and hook.inverse_pairs is None for hook in hooks[i + 1 :]):
            continue  # these inverses may write any entry
        by = next((at for at in range(i + 1, len(parts)) if shapes[at - i - 1] != shapes[at - i]), i)
        if by == i:
            continue  # its own specs differ
        reads, reshapes = type(parts[i]).__name__, type(parts[by]).__name__
        invertible = "in_keys_inv" in inspect.signature(type(parts[by])).parameters
        fix = f"in_keys_inv=[{key!r}] too, which undoes that for {reads}, or " if invertible else ""
        raise SpecError(
            f"{reads} reads {key!r} from the data of each step, of shape {tuple(needed.shape)}, and {reshapes} behind "
            f"it makes that {shapes[-1]}. Give {reshapes} {fix}out_keys of another name."
        )


def _states_added(around: list[EnvSpecs]) -> Iterator[tuple[int, Key]]:
    """Yield the position of each transform that adds a state, and the key of the state."""
    for i, (specs, behind) in enumerate(pairwise(around)):
        for key in behind.state.keys(include_nested=True, leaves_only=True):
            if specs.state.get(key, None) is None and specs.observation.get(key, None) is None:
                yield i, key


def _declared(parts: list[Transform], *names: str) -> set[Key]:
    """Return the keys that were assigned to transforms, without default keys; for each the first name that is set."""
    declared: set[Key] = set()
    for part in parts:
        assigned = (vars(part).get(f"_{name}") for name in names)
        declared.update(next((keys for keys in assigned if keys is not None), ()))
    return declared


def _entry(data: Any, key: Key) -> Any:
    """Return the entry itself; None if it is missing, or if reading it makes a new tensor (a lazy stack)."""
    for name in (key,) if type(key) is str else key:
        if type(data) is not TensorDict:
            return None
        data = entries(data).get(name)
    return data


def version(value: object) -> int:
    """Return how often a tensor has been written into."""
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return 0
    return value._version


def _outputs(specs: EnvSpecs) -> set[Key]:
    return _leaf_keys(specs.observation) | _leaf_keys(specs.reward) | _leaf_keys(specs.done)


def _leaf_keys(spec: Composite) -> set[Key]:
    return set(spec.keys(include_nested=True, leaves_only=True))
