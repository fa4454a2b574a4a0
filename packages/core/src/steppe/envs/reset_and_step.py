"""ResetAndStep: ``reset`` and ``step`` around the ``_reset`` and ``_step`` of an environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tensordict import NestedKey, TensorDict, TensorDictBase, is_leaf_nontensor
from torch import Tensor, nn

from steppe.envs import reset_masks, row_access
from steppe.envs.array.row_steps import RowSteps, row_steps_of
from steppe.envs.checks.runtime import Expectation, check_reset_done, validate
from steppe.envs.done import Masks, any_done, complete_done
from steppe.envs.env_attributes import EnvAttributes
from steppe.envs.env_info import env_info_values
from steppe.envs.next_root import StepPlan, put_next
from steppe.envs.overridden_methods import STEP_METHODS, first_overridden, overridden
from steppe.envs.state import Unset
from steppe.errors import NotSupported, SpecError
from steppe.specs import Composite, as_path
from steppe.storage import entries, parts_of

__all__ = ["ResetAndStep", "check_methods"]

# Values in the cache that follow from the row writer.
_OF_WRITER = ("row_writer", "no_row_writer_reason", "shard_writer", "forced_steps", "overridden")


class ResetAndStep(EnvAttributes):
    """Resets and steps of :class:`~steppe.envs.EnvBase`. Not an environment by itself.

    They check actions, complete done entries, compare the first reset and step with the specs, and apply the masks
    ``"_reset"`` and ``"_step"``.
    """

    #: Methods whose assignment to an instance changes its code path.
    stepping_methods: frozenset[str] = frozenset({*STEP_METHODS, "_step", "_reset"})

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        raise NotSupported(f"{type(self).__name__} does not define _reset(tensordict).")

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        raise NotSupported(f"{type(self).__name__} does not define _step(tensordict).")

    # -- reset --------------------------------------------------------------------------------------------------------

    def reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        env_info: Any = None,
        set_state: bool | None = None,
        **kwargs: Any,
    ) -> TensorDictBase:
        """Begin an episode.

        Args:
            tensordict: data to reset in place. If it holds ``"_reset"`` masks (``[*B, 1]`` or ``[*B]`` bool, one for
                each done level), rows that are False keep their values: those in the data, otherwise what the
                environment has returned last. A mask at the root overrides nested ones.
            env_info: values for each row that the environment may read: a dict or TensorDict that fits
                ``env_info_spec``.
            set_state: True begins at the state in ``tensordict``; False draws a new state even if ``tensordict`` holds
                one. None, the default, leaves the choice to the environment.
            **kwargs: passed to ``_reset``. Wrappers pass them to the library: ``env.reset(options={...})``. A batch
                takes separate ones for each environment: ``batch.reset(list_of_kwargs=[...])``. Use :meth:`set_seed`
                for seeds.

        Returns:
            ``tensordict``, or a new TensorDict, with observations and done entries; no reward.

        Raises:
            NotSupported: ``set_state=True``, and the environment cannot be set to a state.
            SpecError: the data does not have the environment's batch size, the data of ``_reset`` does not fit the
                specs, a row has ended right after its reset, or rows that are not reset have unknown values.
            ClosedError: the environment is closed.
        """
        self.check_open("reset")
        last = self.base_state.last_data()
        self.base_state.uses.note()
        self.base_state.began = {}
        # TorchRL passes this flag on automatic resets, too.
        masks_alone = kwargs.pop("select_reset_only", False)
        if tensordict is None and env_info is None and set_state is None and not kwargs:
            rows = self.row_steps
            if rows is not None and (
                not rows.batch_size or ("reset" in self.base_state.validated and not self.run_type_checks)
            ):
                return self.base_state.returned(rows.reset())
        if set_state is not None:
            kwargs |= reset_masks.asked_state(self, tensordict, set_state=set_state)
        data = self._with_env_info(tensordict, env_info)
        groups = self.done_groups
        masks: Masks = {}
        if data is not None:
            self.check_batch(data, "reset")
            masks = self.requested_masks(data)
            if masks and not any(bool(mask.any()) for mask in masks.values()):
                self.base_state.began = None
                self._keep_other_rows(data, [*self.observation_keys, *self.done_keys], last, "reset")
                return self.base_state.returned(reset_masks.clear_masks(data, groups))
            self.base_state.began = masks
        shown = data
        if masks_alone and data is not None:
            shown, kwargs = self._without_state(data, kwargs)
        return self.base_state.returned(self.merge_reset(data, self._reset(shown, **kwargs), masks, last))

    def _keep_other_rows(
        self, data: TensorDictBase, keys: Iterable[NestedKey], last: TensorDictBase | None, what: str
    ) -> None:
        """Add entries that the data of a reset or step of some rows lacks: their last values, for the other rows.

        Raises:
            SpecError: they are not known.
        """
        known = set(data.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor))
        lacking = [key for key in keys if key not in known]
        if lacking and last is not None and last.batch_size == data.batch_size:
            data.update(last.select(*lacking, strict=False))
            lacking = [key for key in lacking if last.get(key, None) is None]
        lacking = [key for key in lacking if key not in self.done_keys]  # a row that goes on has not ended
        if lacking and not self.base_state.caller_keeps_rows:
            raise SpecError(
                f"{type(self).__name__}.{what}: the environments that are not {what} keep their {lacking[0]!r}, which "
                "the data lacks and the environment does not know: something else has stepped it, or nothing yet. "
                "Pass the whole root, as reset, step_mdp or step_and_maybe_reset returned it, with the mask."
            )

    @contextmanager
    def keeping_rows(self) -> Iterator[None]:
        """Reset or step some rows without the data of the others, which the caller has."""
        state = self.base_state
        before, state.caller_keeps_rows = state.caller_keeps_rows, True
        try:
            yield
        finally:
            state.caller_keeps_rows = before

    def _without_state(self, data: TensorDictBase, kwargs: dict[str, Any]) -> tuple[TensorDictBase, dict[str, Any]]:
        """Return the data and the arguments of ``_reset`` in an automatic reset: no state of the last episode."""
        if self.steps_others:
            return data, {**kwargs, "select_reset_only": True}
        shown = data.select(*self.reset_keys, "env_info", strict=False)
        return shown, {**kwargs, "set_state": False} if self.supports_set_state else kwargs

    def merge_reset(
        self,
        data: TensorDictBase | None,
        fresh: TensorDictBase,
        masks: Masks | None = None,
        last: TensorDictBase | None = None,
    ) -> TensorDictBase:
        """Check the result of ``_reset``, and write it into ``data`` where the masks are True.

        Args:
            data: the data that is reset, or None.
            fresh: the result of ``_reset``.
            masks: the masks by level; by default the ``"_reset"`` masks in ``data``.
            last: the data that was returned last, for entries of other rows that ``data`` lacks.
        """
        groups = self.done_groups
        if masks is None:
            masks = self.requested_masks(data) if data is not None else {}
        if not isinstance(fresh, TensorDictBase):
            raise SpecError(f"{type(self).__name__}._reset must return a TensorDict, found {type(fresh).__name__}.")
        if fresh is data:
            raise SpecError(f"{type(self).__name__}._reset must return a new TensorDict, not the one it was given.")
        complete_done(fresh, groups, self.full_done_spec)
        self._adjust_and_validate(fresh, data, self._expectation, "reset")
        if not self.allow_done_after_reset:
            check_reset_done(fresh, groups, masks, type(self).__name__)
        if data is None:
            return fresh
        if not all(bool(mask.all()) for mask in masks.values()):
            keys = fresh.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
            self._keep_other_rows(data, [key for key in keys if as_path(key)[-1] != "_reset"], last, "reset")
        return reset_masks.merge_reset(data, fresh, groups, masks)

    def _adjust_and_validate(
        self, data: TensorDictBase, root: TensorDictBase | None, expectation: Expectation, what: str
    ) -> None:
        """Reshape and cast the data of a reset or step to the specs, and compare the first one with them."""
        state = self.base_state
        expectation.adjust(data, what, casts=not state.run_type_checks)
        first = what not in state.validated
        if first and what == "step":
            self._find_extra_outputs(data)
        if first or state.run_type_checks:
            validate(self, data, root, what)
            state.validated.add(what)

    def _with_env_info(self, tensordict: TensorDictBase | None, env_info: Any) -> TensorDictBase | None:
        if env_info is None:
            return tensordict
        values = env_info_values(self, env_info)
        if tensordict is None:
            lead = self.batch_size
            if not self.batch_locked and values:
                name, value = next(iter(values.items()))
                lead = value.shape[: value.ndim - len(self.env_info_spec[name].shape) + len(lead)]
            tensordict = TensorDict({}, batch_size=lead, device=self.device)
        tensordict.set("env_info", TensorDict(values, batch_size=tensordict.batch_size, device=self.device))
        return tensordict

    # -- step ---------------------------------------------------------------------------------------------------------

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Take one step.

        Args:
            tensordict: data with the action, of the shape of ``action_spec``, and with the state if the environment has
                one. An action of another dtype is converted, in ``tensordict`` too, if no information is lost. A mask
                ``"_step"`` (``[*B]`` bool) steps some rows only: the others get their previous values, of the data or
                of what the environment has returned last, and rewards of 0. Entries of ``"next"`` that the environment
                does not write are kept.

        Returns:
            ``tensordict`` itself, with the results under ``"next"``.

        Raises:
            ActionError: the action is missing, has the wrong shape or a dtype that cannot be converted without loss, or
                is not a valid choice: a one-hot vector without exactly one 1, a category out of range. The environment
                handles the bounds of continuous actions.
            SpecError: the data does not have the environment's batch size, or the data of ``_step`` does not fit the
                specs.
            ClosedError: the environment is closed.
        """
        state = self.base_state
        rows = None if state.row_steps is None else self._plain_rows(tensordict)
        if rows is not None:
            state.uses.note()
            return put_next(tensordict, state.returned(rows.step(tensordict)))
        self.check_open("step")
        self.check_batch(tensordict, "step")
        plain = type(tensordict) is TensorDict and "_step" not in entries(tensordict)
        mask: Any = None if plain else tensordict.pop("_step", None)
        last = None if mask is None else state.last_data()
        state.uses.note()
        if mask is None:
            return put_next(tensordict, state.returned(self._whole_step(tensordict)))
        known = tensordict.copy()
        self._keep_other_rows(known, [*self.observation_keys, *self.done_keys], last, "step")
        mask = reset_masks.step_mask(tensordict, mask)
        return put_next(tensordict, state.returned(reset_masks.partial_step(self, tensordict, mask, known)))

    def _whole_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        state = self.base_state
        rows = None if state.row_steps is None else self._plain_rows(tensordict)
        if rows is not None:
            return rows.step(tensordict)
        expectation = self._expectation
        expectation.check_action(tensordict)
        following = self._step(tensordict)
        if following is tensordict:
            raise SpecError(f"{type(self).__name__}._step must return a new TensorDict, not the one it was given.")
        if "reward" in state.undeclared:
            # The first step shows whether an environment that has declared no reward has one.
            state.undeclared.discard("reward")
            if isinstance(following, TensorDictBase) and following.get("reward", None) is None:
                self.assign_spec("reward", Composite({}, shape=self.batch_size))
        if "step" not in state.validated:
            expectation = self._expectation  # made anew if this step has shown that the environment has no reward
        expectation.complete(following)
        self._adjust_and_validate(following, tensordict, expectation, "step")
        return following

    def complete_and_validate(self, following: TensorDictBase, root: TensorDictBase) -> None:
        """Complete the data of a step, and compare the first one with the specs, or each with ``run_type_checks``."""
        expectation = self._expectation
        expectation.complete(following)
        self._adjust_and_validate(following, root, expectation, "step")

    def _find_extra_outputs(self, following: TensorDictBase) -> None:
        """Note which entries of a step no spec describes: the next root does not get them."""
        known = {*self.observation_keys, *self.state_keys, *self.reward_keys, *self.done_keys, *self.action_keys}
        keys = following.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
        extra = {key for key in keys if key not in known}
        if extra != self.base_state.extra_outputs:
            self.base_state.extra_outputs = extra
            (self.base_state.cache or {}).pop("step_plan", None)
            self.row_writer_changed()

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Take one step, and reset the rows that ended.

        Returns:
            Two TensorDicts: ``tensordict`` with ``"next"`` (the true results, last observations included), and the root
            of the next step, in which rows that ended hold the first data of a new episode.
        """
        rows = self._plain_rows(tensordict)
        if rows is not None:
            self.base_state.uses.note()
            return tensordict, self.base_state.returned(rows.step_and_reset(tensordict, self.step_mdp))
        # Reading the property takes 0.5 us, and the cache has its value, mostly empty, after the first step.
        if (self.base_state.cache or {}).get("overridden", True) and self.own_overrides:
            tensordict, root = ResetAndStep._step_and_maybe_reset(self, tensordict)
        else:
            tensordict, root = self._step_and_maybe_reset(tensordict)
        return tensordict, self.base_state.returned(root)

    def _step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Run ``step_and_maybe_reset`` on TensorDicts: with its public methods, unless none of them is overridden."""
        tensordict = self.step(tensordict)
        return tensordict, self.maybe_reset(self.step_mdp(tensordict))

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Reset, in place, the rows of ``tensordict`` whose done entries are True."""
        if self.any_done(tensordict):
            return self.reset(tensordict, select_reset_only=True)
        return tensordict

    def any_done(self, tensordict: TensorDictBase) -> bool:
        """Return whether some row has ended; if so, write ``"_reset"`` masks (copies of done) into ``tensordict``."""
        return any_done(tensordict, self.done_groups, write_masks=True)

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Return the root of the next step: observations, state and done entries of ``next``, other entries kept.

        The reward is dropped unless it is part of the state, and so are entries of ``next`` without a spec.

        Args:
            next_tensordict: data with ``"next"``. The result shares its tensors.
        """
        return self.cached("step_plan", self._make_step_plan)(next_tensordict)

    @property
    def step_plan(self) -> StepPlan:
        """Which entries :meth:`step_mdp` drops."""
        return self.cached("step_plan", self._make_step_plan)

    def _make_step_plan(self) -> StepPlan:
        states = set(self.state_keys) | set(self.observation_keys)
        rewards = [key for key in self.reward_keys if key not in states]
        drop_next = [*rewards, *self.base_state.extra_outputs]
        return StepPlan(drop_root=rewards + list(self.done_keys), drop_next=drop_next)

    # -- the code path of a step --------------------------------------------------------------------------------------

    @property
    def row_writer(self) -> Any:
        """The :class:`~steppe.envs.RowWriter` that writes the data of steps into rows of arrays, or None.

        Rollouts, batches and collectors step through it. Without one they step on TensorDicts, and
        ``no_row_writer_reason`` says why.
        """
        return None if self.no_row_writer_reason is not None else self.cached("row_writer", self.make_row_writer)

    @property
    def no_row_writer_reason(self) -> str | None:
        """Why the environment has no ``row_writer``: data without a fixed layout, or an overridden method.

        None if it has one.
        """
        return self.cached("no_row_writer_reason", self._find_no_row_writer_reason)

    def _find_no_row_writer_reason(self) -> str | None:
        return self.no_rows_reason() or first_overridden(self, (*STEP_METHODS, "_step", "_reset"))

    def no_rows_reason(self) -> str | None:
        """Return why the environment cannot write rows, or None if it can; the class then has ``make_row_writer``."""
        return f"{type(self).__name__} steps on TensorDicts."

    def make_row_writer(self) -> Any:
        """Make the ``row_writer``. It is called once, and again after a change of the specs."""
        raise NotSupported(f"{type(self).__name__} does not define make_row_writer().")

    @property
    def shard_writer(self) -> Any:
        """The :class:`~steppe.envs.RowWriter` of its row in a shard of a batch, or None.

        The ``row_writer``, or one that writes loose entries too (text, sizes that vary), for which a batch has a place.
        """
        return self.row_writer

    @property
    def overridden_methods(self) -> frozenset[str]:
        """The methods that rollouts and collectors call, and that a subclass or an instance overrides.

        These are ``reset``, ``step``, ``step_and_maybe_reset``, ``maybe_reset``, ``any_done`` and ``step_mdp``, of this
        environment or of environments inside it. They are called however the environment is stepped.
        """
        return self.own_overrides

    @property
    def own_overrides(self) -> frozenset[str]:
        """The :attr:`overridden_methods` of this environment alone."""
        return self.cached("overridden", lambda: overridden(self))

    # A step goes through rows if the row writer runs no torch code, and through TensorDicts otherwise.

    @property
    def row_steps(self) -> RowSteps | None:
        """Steps on TensorDicts that go through rows; None if there is no row writer, or it runs torch code."""
        rows: Any = self.base_state.row_steps
        if rows is Unset:
            writer = self.row_writer
            rows = None
            if writer is not None and writer.on_arrays:
                rows = row_steps_of(writer, self.batch_size, self.step_plan)
            self.base_state.row_steps = rows
        return rows  # type: ignore[no-any-return]

    @property
    def row_run_steps(self) -> RowSteps:
        """Steps through the row writer, even if it runs torch code: for rollouts and collectors, of many steps at once.

        They are kept, because binding a chain of transforms to new rows takes as long as many steps.
        """
        state = self.base_state
        steps, writer = self.row_steps or state.row_run_steps, self.row_writer
        if steps is None or steps.writer is not writer:
            assert writer is not None
            steps = state.row_run_steps = row_steps_of(writer, self.batch_size)
        return steps

    def _plain_rows(self, tensordict: TensorDictBase) -> RowSteps | None:
        """Return the RowSteps for a step of this data; None if it has a mask, or must be checked against the specs."""
        state = self.base_state
        rows: Any = state.row_steps
        if rows is Unset:
            rows = self.row_steps
        if rows is None or type(tensordict) is not TensorDict:
            return None
        level, batch_size, _, _ = parts_of(tensordict)
        if batch_size != rows.batch_size or "_step" in level or state.is_closed or state.run_type_checks:
            return None
        # Data of a batch is not checked row by row as it is written, so its first step is compared with the specs.
        if batch_size and "step" not in state.validated:
            return None
        return rows  # type: ignore[no-any-return]

    def row_writer_changed(self) -> None:
        """Clear all objects made from the row writer. Call it if the row writer depends on more than the specs."""
        state = self.base_state
        state.row_steps, state.row_run_steps = Unset, None
        state.changes += 1
        for name in _OF_WRITER:
            (state.cache or {}).pop(name, None)

    def __setattr__(self, name: str, value: Any) -> None:
        own = vars(self)
        # An attribute that only the environments inside have is set there, where it is read.
        is_new = name not in own and name[0] != "_" and not hasattr(type(self), name)
        if is_new and own["base_state"].constructed and name not in own["_modules"] and self.set_elsewhere(name, value):
            return
        if name in own and (type(value) is Tensor or not isinstance(value, (Tensor, nn.Module))):
            object.__setattr__(self, name, value)  # steps do this: the method of nn.Module takes 2 us
        else:
            super().__setattr__(name, value)
        if name in self.stepping_methods:
            self.row_writer_changed()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in self.stepping_methods:
            self.row_writer_changed()

    def note_use(self, root: TensorDictBase | None = None) -> None:
        """Note a use of the environment, so that a collector does not join the episodes before and after it.

        ``reset`` and ``step`` do so. A class whose own ``step_and_maybe_reset`` calls neither must call this method.

        Args:
            root: the root that is returned, of which a later reset of some rows keeps the other rows.
        """
        self.base_state.uses.note()
        if root is not None:
            self.base_state.returned(root)

    # -- methods that other modules define ----------------------------------------------------------------------------

    step_at = row_access.step_at
    reset_at = row_access.reset_at
    checked_rows = row_access.checked_rows
    skipped_rows = reset_masks.skipped_rows
    requested_masks = reset_masks.requested_masks
    put_next = staticmethod(put_next)

    # -- for environments that are made of others ---------------------------------------------------------------------

    def is_validated(self, what: str) -> bool:
        """Return whether the data of the first ``"step"`` or ``"reset"`` has been compared with the specs."""
        return what in self.base_state.validated

    def check_action(self, tensordict: TensorDictBase, *, rows: object = None) -> None:
        """Compare the actions in ``tensordict`` with their specs, and convert actions of another dtype in place.

        Args:
            tensordict: data with the actions. If it has a mask ``"_step"``, only rows that are True are checked.
            rows: ``[k]``, the rows of the batch to which the data belongs; all by default.

        Raises:
            ActionError: an action is missing or does not fit.
        """
        self._expectation.check_action(tensordict, rows=rows)

    @property
    def _expectation(self) -> Expectation:
        return self.cached("expectation", lambda: Expectation(self))

    def specs_changed(self) -> None:
        super().specs_changed()
        self.base_state.validated = set()
        self.row_writer_changed()


def check_methods(env: ResetAndStep) -> None:
    """Raise NotSupported if a class defines the method that users call instead of the one that authors write."""
    cls = type(env)
    for name in ("reset", "step"):
        inner = f"_{name}"
        overrides = getattr(cls, name) is not getattr(ResetAndStep, name)
        if overrides and getattr(cls, inner) is getattr(ResetAndStep, inner):
            raise NotSupported(
                f"{cls.__name__} defines {name}, and no {inner}(tensordict). Rename it to {inner}, and let it return a "
                f"TensorDict; {name} itself comes with EnvBase."
            )
