"""Pipeline: the transforms of an environment, reduced to what they do at each step."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ArrayEnv, EnvBase, written_by_policy
from steppe.errors import SpecError
from steppe.specs import every_leaf_key
from steppe.storage import build_td, copy_names, entries, storage_problem
from steppe.transforms.base import Transform
from steppe.transforms.compiled.row_plan import RowPlan, plan_batch, row_problem
from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks, shallow_copy
from steppe.transforms.compose import Compose
from steppe.transforms.transform_keys import names_of

__all__ = ["Pipeline", "leaves", "version"]


def leaves(transform: Transform) -> Iterator[Transform]:
    """The transforms that a chain consists of, nested ones in their place."""
    if isinstance(transform, Compose) and not any(
        getattr(type(transform), name) is not getattr(Compose, name)
        for name in ("_call", "_step", "_reset", "_inv_call", "_reset_env_preprocess", "transform_specs")
    ):
        for part in transform:
            yield from leaves(part)
    else:
        yield transform


class Pipeline:
    """What happens around each call of the base environment, compiled once.

    A transform sees the root as the environment before it is given it: behind its own inverse and those of the
    transforms after it. These views are made for those inverses that there are.

    Attributes:
        base_specs: of the base environment.
        specs: of the environment behind all transforms.
        inverses, before_resets: in the order in which they run, the last transform first.
        steps, resets: in the order in which they run, each with the number of the view that it is given. Transforms
            that have nothing to do there are left out.
        row_plan: the same for rows of arrays, or None where the base, or one of the transforms, needs TensorDicts.
        row_problem: why there is none.
        passed_through_keys: what the environment behind all transforms passes through, see
            :attr:`EnvBase.passed_through_keys`.
        two_trips: the base may not reset by itself, because whether an episode has ended is decided by a transform.
    """

    def __init__(self, base: EnvBase, transform: Transform) -> None:
        specs = self.base_specs = EnvSpecs.of(base)
        found: list[Hooks] = []
        before: list[EnvSpecs] = []
        parts = list(leaves(transform))
        for part in parts:
            before.append(specs)
            found.append(part.hooks_in(specs))
            specs = part.specs_behind(specs)
        self.specs = specs
        self.base_writer = base.row_writer
        self.row_plan: RowPlan | None = None
        self.row_problem = self._plan_rows(base, list(leaves(transform)), found, before, specs)
        self.base_version = base.specs_version
        self.inverses: list[Any] = []
        self.before_resets: list[Any] = []
        self.after_step_mdp = [part._post_step_mdp_hooks for part in parts if part.changes_next_root]
        self.steps: list[tuple[Any, int]] = []
        self.resets: list[tuple[Any, int]] = []
        self.instead_of_reset: Any = None
        for hooks in reversed(found):
            if hooks.inverse is not None:
                self.inverses.append(hooks.inverse)
            if hooks.before_reset is not None:
                self.before_resets.append(hooks.before_reset)
            if hooks.step is not None:
                self.steps.insert(0, (hooks.step, len(self.inverses)))
            if hooks.reset is not None:
                self.resets.insert(0, (hooks.reset, len(self.before_resets)))
        for position, hooks in enumerate(found):
            if hooks.instead_of_reset is not None:
                if any(earlier.reset is not None for earlier in found[:position]):
                    raise SpecError(
                        "A transform that resets in place of the environment comes first: insert it with "
                        "env.insert_transform(0, transform)."
                    )
                self.instead_of_reset = hooks.instead_of_reset
        self.plain_step = type(base).step in (EnvBase.step, ArrayEnv.step) and "step" not in vars(base)
        self.writes_step = transform.writes_step
        same_batch = self.specs.batch_size == self.base_specs.batch_size
        #: Whether steps and resets of some rows may take the data of these rows alone through the transforms.
        self.by_rows = same_batch and not transform.needs_all_rows
        self.may_end = transform.writes_done
        trips_of_its_own = (
            self.writes_step
            or not same_batch
            or bool(self.after_step_mdp)
            or _leaf_keys(self.specs.done) != _leaf_keys(self.base_specs.done)
            # Without a trip of its own to save, a plain step is cheaper.
            or (
                type(base).step_and_maybe_reset is EnvBase.step_and_maybe_reset
                and type(base)._step_and_maybe_reset is EnvBase._step_and_maybe_reset
            )
        )
        own = [key for hooks in found for key in hooks.passed_through]
        states = _leaf_keys(self.specs.state)
        self._passed_by_base = base.passed_through_keys
        self.passed_through_keys = tuple(key for key in dict.fromkeys((*self._passed_by_base, *own)) if key in states)
        self.two_trips = trips_of_its_own or (transform.writes_done and not transform.only_ends)
        known = _outputs(self.base_specs)
        foreign = (known - _leaf_keys(self.base_specs.state)) | (_outputs(self.specs) - known - _leaf_keys(specs.state))
        self._foreign = [*foreign, "next"]
        self._base_outputs = [*every_leaf_key(self.base_specs.observation), *_leaf_keys(self.base_specs.done)]
        # One level that ends whole, and tensors of fixed shapes in it alone.
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
        _refuse_reshaped_states(parts, found, [*before, specs])
        self._own = self._keys_of_base(parts)
        #: Observations of the base that a transform replaces, which the base is not to take for its own.
        self.hidden: set[Any] = set()
        for key in [key for key in self._own if self._is_replaced(key, parts)]:
            self._hide(key)
        if all(hooks.rows is not None for hooks in found):
            self._own = []  # kernels of rows say all that they write: there is nothing to find out at each step

    @property
    def shows_all(self) -> bool:
        """Whether the base may be given the caller's data itself, which it then writes ``next`` into."""
        return not self.inverses and not self.hidden

    def _refuse_changed_states(self, parts: list[Transform]) -> None:
        """Refuse a transform of what each step reads from the root, without an inverse of it."""
        undone = _declared(parts, "in_keys_inv")
        if self.inverses and not undone:
            return  # what these write is not known
        for key, state in self.specs.state.items(include_nested=True, leaves_only=True):
            seen = self.specs.observation.get(key, None)
            if seen is None or state is None or key in undone or self.base_specs.state.get(key, None) is None:
                continue
            if (seen.shape, seen.dtype) != (state.shape, state.dtype):
                raise SpecError(
                    f"{key!r} is a state, which each step reads from the data, and a transform makes it "
                    f"{tuple(seen.shape)} of {seen.dtype} where the environment needs {tuple(state.shape)} of "
                    f"{state.dtype}. Give the transform an inverse, in_keys_inv=[{key!r}], or other out_keys."
                )

    def _keys_of_base(self, parts: list[Transform]) -> list[Any]:
        """Observations that the base may look for in the root without having declared them as states."""
        undone = _declared(parts, "in_keys_inv")
        known = _leaf_keys(self.base_specs.observation) - _leaf_keys(self.base_specs.state) - undone
        if self.base_writer is not None:
            known &= set(self.base_writer.layout.carried)  # it reads no more
        return sorted(known, key=str)

    def _is_replaced(self, key: Any, parts: list[Transform]) -> bool:
        after = self.specs.observation.get(key, None)
        return after != self.base_specs.observation[key] or key in _declared(parts, "out_keys", "in_keys")

    def _hide(self, key: Any) -> None:
        self.hidden.add(key)
        self._own.remove(key)

    def _seen(self, data: TensorDictBase) -> list[Any]:
        """What tells later whether a transform has replaced an observation, or written into it."""
        return [(value := _entry(data, key), version(value)) for key in self._own]

    def _note_replaced(self, seen: list[Any], data: TensorDictBase) -> None:
        for key, (value, before) in zip(list(self._own), seen, strict=True):
            after = _entry(data, key)
            if value is not None and after is not None and (after is not value or version(after) != before):
                self._hide(key)

    def _plan_rows(
        self, base: EnvBase, parts: list[Transform], found: list[Hooks], before: list[EnvSpecs], after: EnvSpecs
    ) -> str | None:
        writer = self.base_writer
        if writer is None:
            return base.row_problem
        if base.batch_size:
            casts = writer.own_rows is None
            self.row_plan, problem = plan_batch(writer.layout, EnvSpecs.of_row(base), parts, casts_in_write=casts)
            return problem
        behind_each = [*before[1:], after] if parts else []  # an empty chain is a chain
        for part, hooks, specs, behind in zip(parts, found, before, behind_each, strict=True):
            problem = row_problem(part, hooks, specs, behind)
            if problem is not None:
                return problem
        plan = RowPlan(writer.layout, parts, found, before, after)
        problem = plan.problem()
        if problem is None:
            self.row_plan = plan
        return problem

    def views(self, tensordict: TensorDictBase) -> list[TensorDictBase]:
        """The root as the caller gave it, and after each inverse; the last is for the base."""
        views = [tensordict]
        for inverse in self.inverses:
            tensordict = inverse(shallow_copy(tensordict))
            views.append(tensordict)
        return views

    def reset_views(self, tensordict: TensorDictBase | None) -> list[TensorDictBase | None]:
        """The same for what reset was called with."""
        views = [tensordict]
        for before in self.before_resets:
            tensordict = before(None if tensordict is None else shallow_copy(tensordict))
            views.append(tensordict)
        return views

    def outward(self, views: list[TensorDictBase], following: TensorDictBase) -> TensorDictBase:
        """Take the data of a step through the transforms."""
        seen = self._seen(following) if self._own else None
        for step, view in self.steps:
            following = step(views[view], following)
        if seen is not None:
            self._note_replaced(seen, following)
        return following

    def outward_reset(self, views: list[TensorDictBase | None], fresh: TensorDictBase) -> TensorDictBase:
        """Take the data of a reset through the transforms."""
        seen = self._seen(fresh) if self._own else None
        for reset, view in self.resets:
            fresh = reset(views[view], fresh)
        if seen is not None:
            self._note_replaced(seen, fresh)
        return fresh

    def done_entries(self, following: TensorDictBase) -> list[Any]:
        """The done entries of a step, to see whether a transform has replaced one."""
        return [following.get(key, None) for key in self._done_keys]

    def by_key(self, ended: list[Any]) -> dict[Any, Any]:
        """What :meth:`done_entries` returned, by key."""
        return dict(zip(self._done_keys, ended, strict=True))

    def without_outputs(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A copy of the root without what the base must not take for its own: observations, rewards and done entries.

        They are transformed, or not known to the base; those that it reads as states stay.
        """
        return self._with_written(tensordict, tensordict.exclude(*self._foreign))

    def base_outputs(self, root: TensorDictBase) -> TensorDictBase:
        """A copy of the observations and done entries of a root that the base has made."""
        if self.flat and type(root) is TensorDict:
            level = entries(root)
            return build_td({key: level[key] for key in self._base_outputs}, root.batch_size, root.device)
        return root.select(*self._base_outputs, strict=False)

    def marked(self, outputs: TensorDictBase) -> dict[str, Any] | None:
        """What tells later which of the base's outputs no transform has touched; None for data with levels."""
        if not self.flat or type(outputs) is not TensorDict:
            return None
        return {name: (value, version(value)) for name, value in entries(outputs).items()}

    def root(self, tensordict: TensorDictBase) -> TensorDictBase:
        """A copy without what the base must not see, for the base to write into.

        Of ``next`` it has only what a policy has written there for the base to pass through.
        """
        return self._with_written(tensordict, self._without(tensordict, ("next", *self.hidden)))

    def _with_written(self, tensordict: TensorDictBase, root: TensorDictBase) -> TensorDictBase:
        written = written_by_policy(tensordict, self._passed_by_base) if self._passed_by_base else None
        return root if written is None else root.set("next", written)

    def shown(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What the base may see of the root; not to be written into."""
        return self._without(tensordict, (*self.hidden,)) if self.hidden else tensordict

    def explain_hidden(self, error: KeyError) -> None:
        """Raise in place of an error of the base about an entry that it is not shown.

        Raises:
            SpecError: says why it does not see the entry.
        """
        for key in sorted(self.hidden, key=str):
            if names_of(key)[-1] in str(error):
                raise SpecError(
                    f"The environment reads {key!r} in a step, and is not shown it, because a transform has replaced "
                    "it in the data. What a step reads beside the action belongs into the environment's state_spec, "
                    f"and the transform then needs an inverse, in_keys_inv=[{key!r}], or other out_keys."
                ) from error

    @staticmethod
    def _without(tensordict: TensorDictBase, keys: tuple[Any, ...]) -> TensorDictBase:
        if type(tensordict) is not TensorDict or not all(type(key) is str for key in keys):
            return tensordict.exclude(*keys)
        level = {name: value for name, value in entries(tensordict).items() if name not in keys}
        return copy_names(tensordict, build_td(level, tensordict.batch_size, tensordict.device))


def _refuse_reshaped_states(parts: list[Transform], hooks: list[Hooks], around: list[EnvSpecs]) -> None:
    """Refuse a transform that reshapes what one before it reads from the root at each step, without an inverse.

    Args:
        parts: the transforms.
        hooks: what each of them does.
        around: the specs before each of them, and behind the last.
    """
    for i, key in _states_added(around):
        leaves_behind = [specs.observation.get(key, None) for specs in around[i + 1 :]]
        needed = around[-1].state.get(key, None)
        if needed is None or any(leaf is None for leaf in leaves_behind):
            continue
        shapes = [tuple(leaf.shape) for leaf in leaves_behind if leaf is not None]
        if shapes[-1] == tuple(needed.shape):
            continue
        if any(one.inverse is not None and one.inverse_pairs is None for one in hooks[i + 1 :]):
            continue  # what these write is not known
        by = next((at for at in range(i + 1, len(parts)) if shapes[at - i - 1] != shapes[at - i]), i)
        if by == i:
            continue  # it has said so itself
        reads, reshapes = type(parts[i]).__name__, type(parts[by]).__name__
        invertible = "in_keys_inv" in inspect.signature(type(parts[by])).parameters
        fix = f"in_keys_inv=[{key!r}] too, which undoes that for {reads}, or " if invertible else ""
        raise SpecError(
            f"{reads} reads {key!r} from the data of each step, of shape {tuple(needed.shape)}, and {reshapes} behind "
            f"it makes that {shapes[-1]}. Give {reshapes} {fix}out_keys of another name."
        )


def _states_added(around: list[EnvSpecs]) -> Iterator[tuple[int, Any]]:
    """The number of each transform that adds a state, and the state's key."""
    for i, (specs, behind) in enumerate(pairwise(around)):
        for key in behind.state.keys(include_nested=True, leaves_only=True):
            if specs.state.get(key, None) is None and specs.observation.get(key, None) is None:
                yield i, key


def _declared(parts: list[Transform], *names: str) -> set[Any]:
    """The keys that transforms were given, without those that a class works out from its environment."""
    found: set[Any] = set()
    for part in parts:
        keys = next((vars(part)[f"_{name}"] for name in names if vars(part).get(f"_{name}") is not None), ())
        found.update(keys)
    return found


def _entry(data: Any, key: Any) -> Any:
    """The entry itself, or None where there is none, or where reading it would make a new one (a lazy stack)."""
    for name in (key,) if type(key) is str else key:
        if type(data) is not TensorDict:
            return None
        data = entries(data).get(name)
    return data


def version(value: Any) -> int:
    """How often a tensor has been written into."""
    if not isinstance(value, torch.Tensor) or value.is_inference():
        return 0
    return value._version


def _outputs(specs: EnvSpecs) -> set[Any]:
    return _leaf_keys(specs.observation) | _leaf_keys(specs.reward) | _leaf_keys(specs.done)


def _leaf_keys(spec: Any) -> set[Any]:
    return set(spec.keys(include_nested=True, leaves_only=True))
