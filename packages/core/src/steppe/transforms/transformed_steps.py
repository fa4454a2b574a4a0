"""TransformedSteps: steps and resets of a TransformedEnv, on TensorDicts and on rows of arrays."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import EnvBase, RowWriter, Unset, merge_reset, merge_rows, step_mask
from steppe.errors import StateError
from steppe.storage import entries
from steppe.transforms.compiled.chain_on_rows import TransformedWriter
from steppe.transforms.compiled.pipeline import Pipeline
from steppe.transforms.compiled.row_plan import RowPlan, shared
from steppe.transforms.transform_keys import Key

__all__ = ["TransformedSteps"]


class TransformedSteps(EnvBase):
    """Steps and resets of :class:`~steppe.transforms.TransformedEnv`."""

    _base: EnvBase
    #: The compiled transforms. Like the next two, cached until the base or a transform changes.
    _pipeline: Pipeline | None = None
    _known_batch_size: torch.Size | None = None
    _known_device: torch.device | type[Unset] | None = Unset

    @property
    def _compiled(self) -> Pipeline:
        if self._pipeline is None:
            self._pipeline = Pipeline(self._base, self.transform)
        return self._pipeline

    def _changed(self) -> None:
        raise NotImplementedError

    # -- rows of arrays -------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why the base or a transform needs TensorDicts, or None if both can be stepped on rows."""
        self._keep_up()
        return self._compiled.no_row_writer_reason

    def make_row_writer(self) -> RowWriter | None:
        """Make the writer of transformed rows."""
        return TransformedSteps.join_rows([self])

    @classmethod
    def join_rows(cls, envs: list[Any]) -> RowWriter | None:
        """Return one writer for the environments of a batch; shared transforms run once for all rows."""
        if any(env.no_row_writer_reason is not None for env in envs):
            return None
        bases = [env._base for env in envs]
        plans = [env._compiled.row_plan for env in envs]
        if len(envs) == 1:
            return None if (writer := bases[0].row_writer) is None else TransformedWriter(writer, plans)
        if any(type(base) is not type(bases[0]) for base in bases) or not _alike(plans):
            return None
        joined = type(bases[0]).join_rows(bases)
        return None if joined is None else TransformedWriter(joined, plans)

    def reset(self, tensordict: TensorDictBase | None = None, *, env_info: Any = None, **kwargs: Any) -> TensorDictBase:
        self._keep_up()
        return super().reset(tensordict, env_info=env_info, **kwargs)

    def _plain_rows(self, tensordict: TensorDictBase) -> Any:
        self._keep_up()
        return super()._plain_rows(tensordict)

    def cached(self, name: str, make: Any) -> Any:
        self._keep_up()
        return super().cached(name, make)

    def _keep_up(self) -> None:
        """Make a new pipeline if the specs or the row writer of the base have changed."""
        pipeline = self._pipeline
        if pipeline is not None and self._base.specs_version != pipeline.base_version:
            self._changed()

    @property
    def specs_version(self) -> int:
        self._keep_up()
        return self.base_state.changes

    # -- steps and resets -----------------------------------------------------------------------------------------

    def _whole_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        # After the first validated step, only the base checks the action.
        state, pipeline = self.base_state, self._compiled
        if "step" in state.validated and not state.run_type_checks and not pipeline.inverses:
            if not pipeline.plain_step or pipeline.hidden or "_step" in tensordict.keys():
                # The base receives a copy, but the caller's action must be converted too.
                self.check_action(tensordict)
            return self._step(tensordict)
        return super()._whole_step(tensordict)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        pipeline = self._pipeline or self._compiled
        if not pipeline.inverses:
            return pipeline.outward([tensordict], self._base_next(pipeline, tensordict))
        views = pipeline.views(tensordict)
        if pipeline.writes_step:
            mask, written = tensordict.get("_step", None), views[-1].get("_step", None)
            if written is not mask:
                written = step_mask(tensordict, written)
                return self._step_some(views, written if mask is None else written & mask)
        return pipeline.outward(views, self._base_next(pipeline, views[-1]))

    def _step_some(self, views: list[TensorDictBase], mask: torch.Tensor) -> TensorDictBase:
        """Step some rows only; the others keep their values."""
        tensordict = views[0]
        if not bool(mask.any()):
            return self.skipped_rows(tensordict)
        partial = not bool(mask.all())
        pipeline = self._compiled
        for i, view in enumerate(views):
            views[i] = view.exclude("_step")
            if partial:
                views[i].set("_step", mask)
        following = pipeline.outward(views, self._base_next(pipeline, views[-1]))
        if partial:
            following = merge_rows(mask, following, self.skipped_rows(tensordict))
        return following

    def _base_next(self, pipeline: Pipeline, root: TensorDictBase) -> TensorDictBase:
        """Step the base environment; return the data of the step, ``next``."""
        base = self._base
        try:
            if "_step" in (entries(root) if type(root) is TensorDict else root.keys()):
                with base.keeping_rows():
                    skipped: TensorDictBase = base.step(pipeline.without_outputs(root)).get("next")
                return skipped
            elif pipeline.plain_step and not base.base_state.is_closed:
                # base.step would do the same, and copy the root first.
                return base._whole_step(pipeline.root(root) if pipeline.hidden else root)
            else:
                root = pipeline.root(root)
            following: TensorDictBase = base.step(root).get("next")
            return following
        except KeyError as error:
            pipeline.explain_hidden(error)
            raise

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        pipeline = self._compiled
        views = pipeline.reset_views(tensordict)
        argument = views[-1]
        fresh = None if pipeline.instead_of_reset is None else pipeline.instead_of_reset(argument)
        if fresh is None:
            if argument is not None:
                argument = pipeline.reset_argument(argument)
                if argument.get("env_info", None) is not None:
                    kwargs["env_info"] = argument.pop("env_info")
            with self._base.keeping_rows():
                fresh = self._base.reset(argument, **kwargs)
        return pipeline.outward_reset(views, fresh)

    @property
    def keys_read(self) -> list[Key]:
        """Keys of the root that a step of the base, or a transform, reads beside the action."""
        return self._compiled.keys_read

    @property
    def passed_through_keys(self) -> tuple[Key, ...]:
        """Keys of states that a step copies from the root to ``next``, unless a policy has written them there."""
        return self._compiled.passed_through_keys

    def _step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Act once, and reset the rows that ended, on TensorDicts.

        If a transform decides what has ended, or the base resets nothing by itself, this takes two round trips.
        """
        pipeline = self._compiled
        checks = not pipeline.two_trips and (self.run_type_checks or not self.is_validated("step"))
        if pipeline.two_trips or (checks and not pipeline.base_makes_roots) or "_step" in tensordict.keys():
            return super()._step_and_maybe_reset(tensordict)
        self.check_open("step_and_maybe_reset")
        self.check_batch(tensordict, "step_and_maybe_reset")
        views, base_data = [tensordict], tensordict
        # Otherwise the base receives the caller's data itself, and writes next into it.
        if pipeline.inverses or pipeline.hidden or not _takes_next(tensordict):
            self.check_action(tensordict)  # the base receives a copy
            views = pipeline.views(tensordict)
            base_data = pipeline.root(views[-1])
        self._base.base_state.began = None
        stepped, base_root = self._base.step_and_maybe_reset(base_data)
        base_next = stepped.get("next")
        done = pipeline.done_entries(base_next)
        following = pipeline.outward(views, base_next)
        if checks:
            self.complete_and_validate(following, tensordict)
        if not (pipeline.base_makes_roots and pipeline.writes_done):
            self._check_ends(done, pipeline.done_entries(following))
        if base_data is not tensordict:
            self.put_next(tensordict, following)
        elif following is not base_next:
            tensordict.set("next", following)
        root = self.step_mdp(tensordict)
        if pipeline.base_makes_roots:
            return tensordict, self._root_of_base(pipeline, root, following, base_next, base_root)
        if self.any_done(root):
            outputs = pipeline.base_outputs(base_root)
            fresh = pipeline.outward_reset(pipeline.reset_views(root), outputs)
            root = merge_reset(root, fresh, self.done_groups, self.requested_masks(root))
        return tensordict, root

    def _root_of_base(
        self,
        pipeline: Pipeline,
        root: TensorDictBase,
        following: TensorDictBase,
        base_next: TensorDictBase,
        base_root: TensorDictBase,
    ) -> TensorDictBase:
        """Return the next root if an overridden method of the base makes its roots: which rows begin is up to it.

        Args:
            pipeline: the transforms.
            root: the next root, as ``step_mdp`` makes it.
            following: ``next``.
            base_next, base_root: the same of the base, before the transforms.
        """
        groups, began = self.done_groups, self._base.base_state.began
        ended = {group.prefix: base_next.get(group.key("done")) for group in groups}
        if began is None:  # it has not called its reset, or its environments are elsewhere
            masks = {group.prefix: ended[group.prefix] & ~base_root.get(group.key("done")) for group in groups}
        else:
            masks = {prefix: began.get(prefix, torch.ones_like(done)) for prefix, done in ended.items()}
        for group in groups:
            root.set(group.reset_key, masks[group.prefix])
        fresh = pipeline.outward_reset(pipeline.reset_views(root), pipeline.base_outputs(base_root))
        root = merge_reset(root, fresh, groups, masks)
        values: Any = base_root.items(include_nested=True, leaves_only=True)
        for key, value in values:
            before, after = base_next.get(key, None), fresh.get(key, None)
            if before is not None and after is not None and not torch.equal(value, before):
                rows = (value != before).reshape(*root.batch_size, -1).any(-1)
                shaped = rows.reshape(rows.shape + (1,) * (after.ndim - rows.ndim))
                root.set(key, torch.where(shaped, after, root.get(key)))
        self.base_state.began = masks
        if pipeline.writes_done:
            newly = {group.prefix: following.get(group.key("done")) & ~ended[group.prefix] for group in groups}
            if any(bool(mask.any()) for mask in newly.values()):
                for group in groups:
                    root.set(group.reset_key, newly[group.prefix])
                root = self.reset(root, select_reset_only=True)
                self.base_state.began = {prefix: mask | newly[prefix] for prefix, mask in masks.items()}
        return root

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        if "step_mdp" not in (self._pipeline or self._compiled).base_overrides:
            return super().step_mdp(next_tensordict)
        # The base does not know the rewards of transforms.
        states = {*self.state_keys, *self.observation_keys}
        root: TensorDictBase = self._base.step_mdp(next_tensordict)
        return root.exclude(*(key for key in self.reward_keys if key not in states))

    @property
    def overridden_methods(self) -> frozenset[str]:
        """See :attr:`EnvBase.overridden_methods`; those of the base count too."""
        return self.own_overrides | self._base.overridden_methods

    @staticmethod
    def _check_ends(before: dict[Key, torch.Tensor], after: dict[Key, torch.Tensor]) -> None:
        for key, value in after.items():
            if value is not before[key] and not torch.equal(before[key].to(value.device), value):
                raise StateError(
                    "A transform wrote 'done' although its writes_done is False, after the environment had reset where "
                    "it ended an episode. Set writes_done = True in its class."
                )

    def step_at(self, tensordict: TensorDictBase, rows: Any) -> TensorDictBase:
        pipeline = self._compiled
        base = self._base
        if type(base).step_at is EnvBase.step_at or pipeline.writes_step or not pipeline.by_rows:
            return super().step_at(tensordict, rows)
        self.check_open("step_at")
        self.check_action(tensordict, rows=self.checked_rows(rows, "step_at"))
        views = pipeline.views(tensordict)
        following = base.step_at(pipeline.root(views[-1]), rows).get("next")
        return self.put_next(tensordict, pipeline.outward(views, following))

    def reset_at(self, tensordict: TensorDictBase | None, rows: Any, *, env_info: Any = None) -> TensorDictBase:
        pipeline = self._compiled
        base = self._base
        if type(base).reset_at is EnvBase.reset_at or pipeline.instead_of_reset is not None or not pipeline.by_rows:
            return super().reset_at(tensordict, rows, env_info=env_info)
        self.check_open("reset_at")
        views = pipeline.reset_views(tensordict)
        argument = None if views[-1] is None else pipeline.reset_argument(views[-1])
        fresh = pipeline.outward_reset(views, base.reset_at(argument, rows, env_info=env_info))
        return fresh if tensordict is None else tensordict.update(fresh)


def _takes_next(tensordict: TensorDictBase) -> TypeGuard[TensorDict]:
    """Whether ``next`` can be written into the data without checks."""
    return type(tensordict) is TensorDict and not tensordict.is_locked and "next" not in entries(tensordict)


def _alike(plans: list[RowPlan]) -> bool:
    """Whether chains have the same types of transforms, specs between them, and inverses."""
    first = plans[0]
    alike = all(
        [type(part) for part in plan.parts] == [type(part) for part in first.parts]
        and plan.before == first.before
        and plan.after == first.after
        and plan.repeating == first.repeating
        for plan in plans[1:]
    )
    # Actions of all rows are decoded in one call.
    return alike and all(not hook.inverse_pairs or shared(plans, i) for i, hook in enumerate(first.hooks))
