"""Pipeline: the hooks of all transforms of an environment, in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ROOT_METHODS, EnvBase, written_by_policy
from steppe.errors import NotSupported, SpecError
from steppe.specs import Composite, every_leaf_key
from steppe.storage import build_alike, entries, shallow_copy
from steppe.transforms.base import Transform
from steppe.transforms.compiled.root_memory import RootReads, links
from steppe.transforms.compiled.row_plan import RowPlan, plan_rows
from steppe.transforms.compiled.transform_hooks import (
    BeforeReset,
    EnvSpecs,
    InverseHook,
    Link,
    ResetHook,
    StepHook,
)
from steppe.transforms.compose import Compose, in_order
from steppe.transforms.transform_keys import Key, names_of

__all__ = ["Pipeline", "leaves"]


def leaves(transform: Transform) -> Iterator[Transform]:
    """Yield the transforms of a chain in order, with the parts of a nested Compose in its place.

    A subclass of Compose that overrides how its parts run is one transform.
    """
    methods = ("_call", "_step", "_reset", "_inv_call", "_reset_env_preprocess", "transform_specs")
    if isinstance(transform, Compose) and not any(transform._writes(name, Compose) for name in methods):
        for part in transform:
            yield from leaves(part)
    else:
        yield transform


class Pipeline:
    """The hooks around each call of the base environment, collected once.

    A transform receives the root as the environment before it does: after its own inverse and the inverses of later
    transforms. Each of these versions of the root is a *view*, and there is one for each inverse.

    Attributes:
        chain: the transforms, with their hooks and the specs before and behind each.
        base_specs: specs of the base environment.
        specs: specs behind all transforms.
        inverses, before_resets: hooks in the order in which they run, the last transform first.
        steps, resets: hooks in the order in which they run, each with the number of its view.
        row_plan: the plan for rows of arrays; None if the base or a transform needs TensorDicts.
        no_row_writer_reason: why ``row_plan`` is None.
        passed_through_keys: keys that the environment with all transforms passes through; see
            :attr:`EnvBase.passed_through_keys`.
        two_trips: whether a step and its resets take two round trips, because a transform decides which episodes end.
        writes_done: whether a transform may end an episode.
        base_overrides: the public methods that step the base and are overridden there.
        plain_step: whether the base does not override ``EnvBase.step``, so that ``_whole_step`` may replace it.
        by_rows: whether steps and resets of some rows may pass the data of these rows only through the transforms.
        keys_read: see :attr:`EnvBase.keys_read`.
        hidden: observations that the base may read, and that a transform replaces; the base does not receive them.
    """

    def __init__(self, base: EnvBase, transform: Transform) -> None:
        self.base_specs = EnvSpecs.of(base)
        for part in in_order(transform):
            if hasattr(part, "_post_step_mdp_hooks"):
                raise NotSupported(
                    f"{type(part).__name__} defines _post_step_mdp_hooks, which is never called. Change the data of a "
                    "step in _step, and the first data of an episode in _reset."
                )
        parts = list(leaves(transform))
        reads = RootReads(base)
        chain = self.chain = list(links(parts, self.base_specs, reads))
        all_hooks = [link.hooks for link in chain]
        self.specs = chain[-1].after if chain else self.base_specs
        self.base_writer = base.row_writer
        self.row_plan, self.no_row_writer_reason = self._plan_rows(base, parts, chain)
        self.base_version = base.specs_version
        self.inverses: list[InverseHook] = []
        self.before_resets: list[BeforeReset] = []
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
        self.base_overrides = base.overridden_methods
        self.plain_step = type(base).step is EnvBase.step and "step" not in vars(base)
        self.writes_step = transform.writes_step
        same_batch = self.specs.batch_size == self.base_specs.batch_size
        self.by_rows = same_batch and not transform.needs_all_rows
        base_cannot_reset = (
            self.writes_step or not same_batch or _leaf_keys(self.specs.done) != _leaf_keys(self.base_specs.done)
        )
        # The base takes two round trips itself, and a plain step is cheaper.
        base_resets_apart = (
            type(base).step_and_maybe_reset is EnvBase.step_and_maybe_reset
            and type(base)._step_and_maybe_reset is EnvBase._step_and_maybe_reset
        )
        #: Whether only the ``step_and_maybe_reset`` of the base makes its next root.
        self.base_makes_roots = bool(self.base_overrides & (ROOT_METHODS - {"step_mdp"}))
        if self.base_makes_roots and base_cannot_reset:
            method = min(self.base_overrides & (ROOT_METHODS - {"step_mdp"}))
            raise NotSupported(
                f"{type(base).__name__} overrides {method}, which is not called behind a transform that leaves out "
                "steps, or changes the batch size or the done entries. Override step or reset instead."
            )
        passed = [key for hooks in all_hooks for key in hooks.passed_through]
        states = _leaf_keys(self.specs.state)
        self._passed_by_base = base.passed_through_keys
        self.passed_through_keys = tuple(
            key for key in dict.fromkeys((*self._passed_by_base, *passed)) if key in states
        )
        self.writes_done = transform.writes_done
        self.two_trips = not self.base_makes_roots and (
            base_cannot_reset or base_resets_apart or self.writes_done or "step_mdp" in self.base_overrides
        )
        known = _outputs(self.base_specs)
        foreign = (known - _leaf_keys(self.base_specs.state)) | (
            _outputs(self.specs) - known - _leaf_keys(self.specs.state)
        )
        self._foreign = [*foreign, "next"]
        self._base_actions = _leaf_keys(self.base_specs.action)
        self._base_outputs = [*every_leaf_key(self.base_specs.observation), *_leaf_keys(self.base_specs.done)]
        self._done_keys = [group.key("done") for group in self.specs.groups if "done" in group.names]
        self.hidden, self.keys_read = reads.hidden, list(dict.fromkeys((*states, *reads.readers)))

    def _plan_rows(self, base: EnvBase, parts: list[Transform], chain: list[Link]) -> tuple[RowPlan | None, str | None]:
        """Return the plan of the chain on rows, or why the chain cannot run on rows."""
        writer = self.base_writer
        if writer is None:
            return None, base.no_row_writer_reason
        if not base.batch_size:
            return plan_rows(writer.layout, chain, self.base_specs)
        specs = EnvSpecs.of_row(base)
        if specs is None:
            return None, "the environments of the batch differ, or it has states."
        casts = writer.own_rows is None
        return plan_rows(
            writer.layout, links(parts, specs, RootReads(base)), specs, of_batch=True, casts_in_write=casts
        )

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
        return self._run(self.steps, views, following)

    def outward_reset(self, views: list[TensorDictBase | None], fresh: TensorDictBase) -> TensorDictBase:
        """Transform the data of a reset."""
        return self._run(self.resets, views, fresh)

    def _run(self, hooks: list[tuple[Any, int]], views: list[Any], data: TensorDictBase) -> TensorDictBase:
        for hook, view in hooks:
            data = hook(views[view], data)
        return data

    def done_entries(self, following: TensorDictBase) -> dict[Key, torch.Tensor]:
        """Return the entries ``done`` of a step by key."""
        return {key: following.get(key, None) for key in self._done_keys}

    def without_outputs(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a copy of the root without observations, rewards and done entries, except states of the base.

        These entries are transformed or unknown to the base, which might take them for its own.
        """
        return self._with_written(tensordict, tensordict.exclude(*self._foreign))

    def reset_argument(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data that the base receives at a reset: a root without outputs and without actions.

        A reset reads no action, and one that an inverse has renamed would appear in the caller's data.
        """
        argument = self.without_outputs(tensordict)
        return argument.exclude(*self._base_actions) if self.inverses else argument

    def base_outputs(self, root: TensorDictBase) -> TensorDictBase:
        """Return a copy of a root of the base with its observations and done entries only."""
        if type(root) is not TensorDict or not all(type(key) is str for key in self._base_outputs):
            return root.select(*self._base_outputs, strict=False)
        level = entries(root)
        return build_alike({key: level[key] for key in self._base_outputs if key in level}, root)

    def root(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return a copy of the root that the base may write into, without hidden entries.

        Its ``next`` has only the entries that a policy has written there for the base to pass through.
        """
        keys = ("next", *self.hidden)
        if type(tensordict) is not TensorDict or not all(type(key) is str for key in keys):
            return self._with_written(tensordict, tensordict.exclude(*keys))
        level = {name: value for name, value in entries(tensordict).items() if name not in keys}
        return self._with_written(tensordict, build_alike(level, tensordict))

    def _with_written(self, tensordict: TensorDictBase, root: TensorDictBase) -> TensorDictBase:
        written = written_by_policy(tensordict, self._passed_by_base) if self._passed_by_base else None
        return root if written is None else root.set("next", written)

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


def _outputs(specs: EnvSpecs) -> set[Key]:
    return _leaf_keys(specs.observation) | _leaf_keys(specs.reward) | _leaf_keys(specs.done)


def _leaf_keys(spec: Composite) -> set[Key]:
    return set(spec.keys(include_nested=True, leaves_only=True))
