"""EnvBase: the contract of every environment."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_leaf_nontensor
from torch import nn

from steppe.envs.array.td_steps import RowSteps
from steppe.envs.auto_reset import AutoResetMemory
from steppe.envs.auto_specs import infer_specs
from steppe.envs.checks.runtime import Expectation, check_reset_done, validate
from steppe.envs.compiling import compile_step, forget_compiled_step
from steppe.envs.construction import EnvMeta
from steppe.envs.done import any_done, complete_done, done_groups
from steppe.envs.env_info import env_info_values
from steppe.envs.env_specs import SpecViews
from steppe.envs.masks.reset import asked_state, clear_masks, merge_reset, requested_masks
from steppe.envs.masks.step import partial_step, skipped_next, step_mask
from steppe.envs.module import Module
from steppe.envs.rollout.choice import run_rollout
from steppe.envs.rollout.loop import finish as finish_rollout
from steppe.envs.rollout.loop import plan as plan_rollout
from steppe.envs.rollout.random_actions import draw_actions
from steppe.envs.row_access import check_rows, reset_at, step_at
from steppe.envs.seeding import next_seed, random_state_kept
from steppe.envs.state import BaseState, Unknown
from steppe.envs.step_mdp import StepPlan, put_next
from steppe.errors import ClosedError, NotSupported, SpecError, StateError
from steppe.specs import CPU, SPEC_KINDS, Composite
from steppe.storage import entries

__all__ = ["EnvBase"]


class EnvBase(SpecViews, Module, metaclass=EnvMeta):
    """An environment: specs, ``reset``, ``step``, ``set_seed``.

    A subclass assigns ``observation_spec``, ``action_spec``, ``reward_spec`` and ``done_spec`` (shapes include
    ``batch_size``) and writes three methods:

    * ``_reset(tensordict) -> TensorDict``: the first data of an episode: observations, optionally done entries, no
      reward. ``tensordict`` is None or what ``reset`` was given; after the end of an episode, when the next one begins
      by itself, it holds masks and ``env_info`` alone, so that no state of the last one is taken over. Where it holds a
      mask ``"_reset"`` (``[*B, 1]``, one for each done level), only rows that are True have to be reset; what is
      returned for the others is dropped. A class that says ``_supports_set_state = True`` takes ``set_state`` too, see
      ``reset``.
    * ``_step(tensordict) -> TensorDict``: observations, reward and done entries after the action in ``tensordict``. A
      new TensorDict, not the one it was given. ``done`` may be left out where ``terminated`` is given, and the other
      way round. Rewards and done entries take the shapes of their specs, where they have as many elements, and all of
      it their dtypes, where those are floating or hold the same values.
    * ``_set_seed(seed) -> None``: seed the generator. The seed holds from the next reset on.

    What happens at the edges:

    * ``step`` after the episode has ended is the environment's choice; reset first.
    * ``reset`` forgets the running episode. ``reset(td)`` writes into ``td`` and returns it, masks removed.
    * data given to ``step`` and ``reset`` has the batch size of the environment, unless it is not ``batch_locked``.
    * a tensor that the environment returned is never changed by it afterwards.

    Args:
        device: where inputs and outputs are, or None to claim nothing.
        batch_size: leading dimensions of all data.
        run_type_checks: check every step against the specs, not only the first, and refuse data of another dtype.
        allow_done_after_reset: accept an episode that has ended when it begins.
        spec_locked: lock the specs when the outermost ``__init__`` has ended; until then they can be edited in place.
        auto_reset: the environment resets itself in ``_step``: where done is True, the observations that ``_step``
            returns are the first of the next episode. They become the next root, and no reset is asked for.
        auto_reset_replace: put NaN (-1 for whole numbers, False for bool) where the last observation of such an episode
            would be; False leaves the first observation of the next episode there.
        compile: True, or a dict of arguments, calls :meth:`compile` at the end.
        policy: a module that will act. What it needs of an environment is appended: an ``InitTracker``, and the primers
            that its parts offer (``make_tensordict_primer()``), where the environment lacks them. What is returned then
            is a :class:`~steppe.transforms.TransformedEnv`.

    Every class takes ``spec_locked``, ``auto_reset``, ``auto_reset_replace``, ``compile`` and ``policy``, also where
    its ``__init__`` has no such arguments.
    """

    #: Whether data must have exactly the environment's batch size. False for functions of their input.
    _batch_locked: bool = True
    #: Whether its ``_step`` and ``_reset`` are those of other environments.
    steps_others: bool = False
    #: Whether ``step_mdp`` may change the data of the step that it is given.
    edits_frames: bool = False
    #: What this class keeps of the environment.
    base_state: BaseState
    #: Whether ``_reset`` takes a keyword ``set_state``, and begins at the state in its data where that is True.
    _supports_set_state: bool = False
    #: Whether batch size, device and specs are there to be read. False for a batch that has not been started, where
    #: reading one of them makes its environments.
    _is_described: bool = True

    def __init__(
        self,
        *,
        device: torch.device | str | int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int | None = None,
        run_type_checks: bool = False,
        allow_done_after_reset: bool = False,
        spec_locked: bool = True,
        auto_reset: bool = False,
        auto_reset_replace: bool = True,
    ) -> None:
        if "_modules" not in vars(self):
            nn.Module.__init__(self)
        state = self.base_state
        state.initialized, state.is_closed = True, False
        if device is not None:
            state.device = torch.device(device)
        if batch_size is not None:
            state.batch_size = torch.Size((batch_size,) if isinstance(batch_size, int) else batch_size)
        state.spec_locked = spec_locked
        state.run_type_checks = run_type_checks
        state.allow_done_after_reset = allow_done_after_reset
        self._use_auto_reset(auto_reset, replace=auto_reset_replace)
        state.generator = state.env_info_spec = None
        self._assign_specs_again()

    def __new__(
        cls, *args: Any, _inplace_update: bool = False, _batch_locked: bool | None = None, **kwargs: Any
    ) -> Any:
        """Make the object; ``_batch_locked`` sets the attribute of that name, ``_inplace_update`` has no meaning."""
        env = super().__new__(cls)
        env.base_state = BaseState()
        if _batch_locked is not None:
            env._batch_locked = _batch_locked
        return env

    def _finish_construction(
        self,
        *,
        spec_locked: bool | None = None,
        auto_reset: bool | None = None,
        auto_reset_replace: bool | None = None,
        policy: Any = None,
        compile: bool | dict[str, Any] | None = None,
    ) -> Any:
        """What comes after the outermost ``__init__``; the arguments are those that it did not name."""
        state = self.base_state
        if not state.initialized:
            raise StateError(
                f"{type(self).__name__}.__init__ has not called super().__init__(). Write it as the first line: "
                "super().__init__(**kwargs)."
            )
        if spec_locked is not None:
            state.spec_locked = spec_locked
        if auto_reset is not None or auto_reset_replace is not None:
            memory = state.auto_reset
            wanted = auto_reset if auto_reset is not None else memory is not None
            before = memory.replace if memory is not None else True
            self._use_auto_reset(wanted, replace=before if auto_reset_replace is None else auto_reset_replace)
        state.constructed = True
        self.settle_specs()
        env = self if policy is None else self._prepared_for(policy)
        if compile is not None and compile is not False:
            if compile is not True and not isinstance(compile, dict):
                raise TypeError(f"compile is True, or a dict of arguments for env.compile(), found {compile!r}.")
            env.compile(**({} if compile is True else compile))
        return env

    def _use_auto_reset(self, wanted: bool, *, replace: bool) -> None:
        if wanted and self.steps_others:
            raise TypeError(
                f"{type(self).__name__} steps other environments: give auto_reset=True to those that reset themselves."
            )
        self.base_state.auto_reset = AutoResetMemory(replace=replace) if wanted else None

    def _prepared_for(self, policy: Any) -> Any:
        """This environment with the transforms that a policy needs, or itself where it has all of them."""
        from steppe.transforms import transforms_for_policy

        env: Any = self
        for transform in transforms_for_policy(policy, self):
            env = env.append_transform(transform)
        return env

    # -- what a subclass writes -----------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        raise NotSupported(f"{type(self).__name__} does not define _reset(tensordict).")

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        raise NotSupported(f"{type(self).__name__} does not define _step(tensordict).")

    def _set_seed(self, seed: int | None) -> None:
        raise NotSupported(
            f"{type(self).__name__} does not define _set_seed(seed), so it cannot be seeded. Define it, and seed the "
            "generator that the environment draws from; write pass where nothing is random."
        )

    # -- attributes -----------------------------------------------------------------------------------------------

    @property
    def batch_size(self) -> torch.Size:
        """Leading dimensions of all data and of every spec. Assigning expands specs that had no batch."""
        return self.base_state.batch_size

    @batch_size.setter
    def batch_size(self, value: Iterable[int]) -> None:
        old, size = self.base_state.batch_size, torch.Size(value)
        self.base_state.batch_size = size
        self._assign_specs_again(lambda spec: _rebatched(spec, old, size))

    @property
    def shape(self) -> torch.Size:
        """The same as ``batch_size``."""
        return self.batch_size

    @property
    def batch_dims(self) -> int:
        """How many batch dimensions there are."""
        return len(self.batch_size)

    @property
    def ndim(self) -> int:
        """The same as ``batch_dims``."""
        return len(self.batch_size)

    def ndimension(self) -> int:
        """The same as ``batch_dims``."""
        return len(self.batch_size)

    def numel(self) -> int:
        """How many environments the batch holds; 1 without a batch."""
        return self.batch_size.numel()

    @property
    def batch_locked(self) -> bool:
        """Whether data must have the environment's batch size. False: any batch size (with one of its own: that)."""
        return self._batch_locked

    @batch_locked.setter
    def batch_locked(self, value: bool) -> None:
        if isinstance(getattr(type(self), "_batch_locked", None), property):
            raise NotSupported(
                f"{type(self).__name__}.batch_locked is that of its base: assign env.base_env.batch_locked."
            )
        self._batch_locked = bool(value)
        self.specs_changed()

    @property
    def supports_set_state(self) -> bool:
        """Whether ``reset(td, set_state=True)`` begins exactly at the state in ``td``."""
        return self._supports_set_state

    @property
    def device(self) -> torch.device | None:
        """Where inputs and outputs are, or None. Change it with ``to``."""
        return self.base_state.device

    @device.setter
    def device(self, value: Any) -> None:
        if self.device is not None and torch.device(value) != self.device:
            raise AttributeError(f"This environment is on {self.device}: move it with env.to({str(value)!r}).")
        self.to(value)

    @property
    def run_type_checks(self) -> bool:
        """Whether every step is checked against the specs, not only the first."""
        return self.base_state.run_type_checks

    @run_type_checks.setter
    def run_type_checks(self, value: bool) -> None:
        self.base_state.run_type_checks = value

    @property
    def allow_done_after_reset(self) -> bool:
        """Whether an episode may have ended when it begins."""
        return self.base_state.allow_done_after_reset

    @allow_done_after_reset.setter
    def allow_done_after_reset(self, value: bool) -> None:
        self.base_state.allow_done_after_reset = value

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.base_state.is_closed

    @is_closed.setter
    def is_closed(self, value: bool) -> None:
        self.base_state.is_closed = value

    @property
    def row_writer(self) -> Any:
        """What writes the data of its steps into rows of arrays, a :class:`~steppe.envs.RowWriter`; None without one.

        Rollouts, batches and collectors step through it where there is one, and on TensorDicts otherwise;
        ``row_problem`` says why there is none.
        """
        return None

    @property
    def row_problem(self) -> str | None:
        """Why there is no ``row_writer``; None where there is one."""
        return f"{type(self).__name__} steps on TensorDicts."

    @classmethod
    def join_rows(cls, envs: list[Any]) -> Any:
        """Return one :class:`~steppe.envs.RowWriter` for environments of this class in a batch, or None.

        Called where each of them has a ``row_writer``, all with the same specs.
        """
        return None

    @property
    def env_info_spec(self) -> Composite:
        """What ``reset(env_info=...)`` may be given for each row. Empty by default."""
        spec = self.base_state.env_info_spec
        return spec if spec is not None else Composite({}, shape=self.batch_size)

    @env_info_spec.setter
    def env_info_spec(self, spec: Composite) -> None:
        self.base_state.env_info_spec = spec

    @property
    def has_dynamic_specs(self) -> bool:
        """Whether some entry has a size that is only known at run time (``-1``)."""
        return bool(
            self.cached(
                "dynamic",
                lambda: any(
                    leaf is not None and any(size < 0 for size in leaf.shape)
                    for kind in SPEC_KINDS
                    for leaf in self._full_spec(kind).values(include_nested=True, leaves_only=True)
                ),
            )
        )

    def specs_changed(self) -> None:
        super().specs_changed()
        self.base_state.validated = set()
        self.forget_way()

    # -- reset ----------------------------------------------------------------------------------------------------

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
            tensordict: data to reset in place. Where it holds ``"_reset"`` masks (``[*B, 1]`` or ``[*B]`` bool, one for
                each done level), rows that are False keep their values. A mask at the root overrides nested ones.
            env_info: values for each row that the environment may read, a dict or TensorDict that fits
                ``env_info_spec``.
            set_state: True begins at the state in ``tensordict``, without drawing a new one; False draws one whatever
                ``tensordict`` holds. None, the default, leaves it to the environment.
            **kwargs: handed to ``_reset``. Wrappers hand them on to the library: ``env.reset(options={...})``. Of a
                batch, ``batch.reset(list_of_kwargs=[...])`` gives each environment its own. A seed is given with
                :meth:`set_seed`.

        Returns:
            ``tensordict``, or a new TensorDict, with observations and done entries; no reward.

        Raises:
            NotSupported: ``set_state=True``, and the environment cannot be put into a state.
            SpecError: the data does not have the environment's batch size, ``_reset`` returned something else than
                its specs say, or a row has ended right after its reset.
            ClosedError: the environment is closed.
        """
        self.check_open("reset")
        # At a reset that nobody asked for, TorchRL's name for what its environments are shown.
        masks_alone = kwargs.pop("select_reset_only", False)
        if tensordict is None and env_info is None and set_state is None and not kwargs:
            rows = self.row_steps
            if rows is not None and (
                not rows.batch_size or ("reset" in self.base_state.validated and not self.run_type_checks)
            ):
                return rows.reset()
        if set_state is not None:
            kwargs |= asked_state(self, tensordict, set_state=set_state)
        given = self._with_env_info(tensordict, env_info)
        groups = self.done_groups
        masks: dict[Any, torch.Tensor] = {}
        if given is not None:
            self.check_batch(given, "reset")
            masks = requested_masks(given, groups)
            if masks and not any(bool(mask.any()) for mask in masks.values()):
                return clear_masks(given, groups)
        memory = self.base_state.auto_reset
        if memory is not None and masks and memory.pending is not None:
            fresh = memory.take(given, self)
        else:
            shown = given
            if masks_alone and given is not None:
                shown, kwargs = self._without_state(given, kwargs)
            fresh = self._reset(shown, **kwargs)
        return self.settle_reset(given, fresh, masks)

    def _without_state(self, given: TensorDictBase, kwargs: dict[str, Any]) -> tuple[TensorDictBase, dict[str, Any]]:
        """What ``_reset`` gets when an episode begins because another one has ended, and with which arguments."""
        if self.steps_others:
            return given, {**kwargs, "select_reset_only": True}
        shown = given.select(*self.reset_keys, "env_info", strict=False)
        return shown, {**kwargs, "set_state": False} if self.supports_set_state else kwargs

    def settle_reset(
        self, given: TensorDictBase | None, fresh: TensorDictBase, masks: dict[Any, torch.Tensor] | None = None
    ) -> TensorDictBase:
        """Check what a reset gave and write it into ``given`` where the masks in it (by default) are True."""
        groups = self.done_groups
        if masks is None:
            masks = requested_masks(given, groups) if given is not None else {}
        if not isinstance(fresh, TensorDictBase):
            raise SpecError(f"{type(self).__name__}._reset must return a TensorDict, found {type(fresh).__name__}.")
        if fresh is given:
            raise SpecError(f"{type(self).__name__}._reset must return a new TensorDict, not the one it was given.")
        complete_done(fresh, groups, self.full_done_spec)
        first = "reset" not in self.base_state.validated
        expectation = self._expectation
        expectation.adjust(fresh, "reset", first=first, casts=not self.run_type_checks)
        if not self.allow_done_after_reset:
            check_reset_done(fresh, groups, masks, type(self).__name__)
        if first or self.run_type_checks:
            validate(expectation, fresh, given, "reset", partial=bool(masks), hint=self.spec_hint)
            self.base_state.validated.add("reset")
        if given is None:
            return fresh
        return merge_reset(given, fresh, groups, masks)

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

    # -- step -----------------------------------------------------------------------------------------------------

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Act once.

        Args:
            tensordict: data with the action, of the shape of ``action_spec``, and the state where the environment has
                one. An action of another dtype is converted, in ``tensordict`` too, if that loses nothing. A mask
                ``"_step"`` (``[*B]`` bool) steps some rows only: the others get their previous values, or 0 where the
                data has none. Entries of ``"next"`` that the environment does not write are kept.

        Returns:
            ``tensordict`` itself, with the outcome under ``"next"``.

        Raises:
            ActionError: the action is missing, of the wrong shape, of a dtype whose values the spec's does not hold, or
                chooses what is not there: a one-hot row without a single 1, a category out of range. Bounds of
                continuous actions are left to the environment.
            SpecError: the data does not have the environment's batch size, or what ``_step`` returned does not fit.
            ClosedError: the environment is closed.
        """
        rows = self._plain_rows(tensordict)
        if rows is not None:
            return rows.attach(tensordict, rows.step(tensordict)[0])
        self.check_open("step")
        self.check_batch(tensordict, "step")
        plain = type(tensordict) is TensorDict and "_step" not in entries(tensordict)
        mask: Any = None if plain else tensordict.pop("_step", None)
        if mask is None:
            return put_next(tensordict, self._whole_step(tensordict))
        return put_next(tensordict, partial_step(self, tensordict, step_mask(tensordict, mask)))

    def _whole_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = self._plain_rows(tensordict)
        if rows is not None:
            return rows.step(tensordict)[0]
        expectation = self._expectation
        expectation.check_action(tensordict)
        following = self._step(tensordict)
        if following is tensordict:
            raise SpecError(f"{type(self).__name__}._step must return a new TensorDict, not the one it was given.")
        state = self.base_state
        if "reward" in state.undeclared:
            # The first step settles whether an environment that has declared no reward has one.
            state.undeclared.discard("reward")
            if isinstance(following, TensorDictBase) and following.get("reward", None) is None:
                self.assign_spec("reward", Composite({}, shape=self.batch_size))
        first = "step" not in state.validated
        if first:
            expectation = self._expectation  # this step may have shown that there is no reward
        expectation.complete(following)
        expectation.adjust(following, "step", first=first, casts=not self.run_type_checks)
        if first:
            self._find_extra_outputs(following)
        if first or self.run_type_checks:
            validate(expectation, following, tensordict, "step", hint=self.spec_hint)
            state.validated.add("step")
        if state.auto_reset is not None:
            following = state.auto_reset.keep(following, self)
        return following

    def _find_extra_outputs(self, following: TensorDictBase) -> None:
        """Note which entries a step returns that no spec describes: they are no part of the next root."""
        known = {*self.observation_keys, *self.state_keys, *self.reward_keys, *self.done_keys, *self.action_keys}
        found = following.keys(include_nested=True, leaves_only=True, is_leaf=is_leaf_nontensor)
        extra = {key for key in found if key not in known}
        if extra != self.base_state.extra_outputs:
            self.base_state.extra_outputs = extra
            (self.base_state.cache or {}).pop("step_plan", None)

    def settle_reward_spec(self, tensordict: TensorDictBase | None = None) -> None:
        """Find out, where nobody has declared a reward, whether there is one, by a reset and a step.

        An environment that assigns no ``reward_spec`` has a reward at ``"reward"``, unless its first step returns none.
        Who lays out data before the first step calls this. Random states are left as they were, except those of the
        environment's own that nothing can save; where it cannot be stepped, nothing is found out.

        Args:
            tensordict: data to reset from.
        """
        if (
            self.full_reward_spec.is_empty()
            or "reward" not in self.base_state.undeclared
            or self.row_writer is not None
        ):
            return
        with random_state_kept(self), suppress(Exception):
            self.rand_step(self.reset(None if tensordict is None else tensordict.clone()))

    # -- for environments that are made of others -----------------------------------------------------------------

    def unstepped(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What ``next`` holds where no row is stepped: the values of the root, and rewards of 0."""
        return skipped_next(self, tensordict)

    def requested_masks(self, tensordict: TensorDictBase) -> dict[Any, torch.Tensor]:
        """The ``"_reset"`` masks in ``tensordict``, by the prefix of their level."""
        return requested_masks(tensordict, self.done_groups)

    def checked_rows(self, rows: Any, what: str) -> torch.Tensor:
        """Rows of the batch as ``[k]`` int64; ``what`` was called with them, for errors."""
        return check_rows(self, rows, what)

    @staticmethod
    def put_next(tensordict: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
        """Put ``following`` under ``"next"``, with the entries there that it does not have; returns ``tensordict``."""
        return put_next(tensordict, following)

    def step_mdp(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        """Return the root of the next step: observations, state and done entries of ``next``, other entries kept.

        The reward is left behind unless it is part of the state, and so is what the environment returns without a spec.

        Args:
            next_tensordict: data with ``"next"``. Its tensors are those of the result too.
        """
        return self.cached("step_plan", self._make_step_plan)(next_tensordict)

    def _make_step_plan(self) -> StepPlan:
        states = set(self.state_keys) | set(self.observation_keys)
        rewards = [key for key in self.reward_keys if key not in states]
        drop_next = [*rewards, *self.base_state.extra_outputs]
        return StepPlan(drop_root=rewards + list(self.done_keys), drop_next=drop_next)

    def any_done(self, tensordict: TensorDictBase) -> bool:
        """Tell whether some row has ended; writes the masks ``"_reset"`` (a copy of done) into ``tensordict`` if so."""
        return any_done(tensordict, self.done_groups, write_masks=True)

    def maybe_reset(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Reset, in place, the rows of ``tensordict`` whose done entries are True."""
        if self.any_done(tensordict):
            return self.reset(tensordict, select_reset_only=True)
        return tensordict

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        """Act once, and reset the rows that ended.

        Returns:
            Two TensorDicts: ``tensordict`` with ``"next"`` (the true outcome, last observations included), and the root
            of the next step, in which rows that ended hold the first data of a new episode.
        """
        rows = self._plain_rows(tensordict)
        if rows is not None:
            following, ended = rows.step(tensordict)
            root = self.step_mdp(rows.attach(tensordict, following))
            return tensordict, rows.reset_ended(root, following, ended) if ended else root
        tensordict = self.step(tensordict)
        return tensordict, self.maybe_reset(self.step_mdp(tensordict))

    # -- which way a step takes -----------------------------------------------------------------------------------

    # A step goes through rows where the row writer is numpy alone, and on TensorDicts otherwise.

    @property
    def row_steps(self) -> RowSteps | None:
        """Steps on TensorDicts that go through rows; None where there is no row writer of that kind."""
        rows: Any = self.base_state.row_steps
        if rows is Unknown:
            writer = self.row_writer
            rows = RowSteps(writer, self.batch_size) if writer is not None and writer.on_arrays else None
            self.base_state.row_steps = rows
        return rows  # type: ignore[no-any-return]

    def _plain_rows(self, tensordict: TensorDictBase) -> RowSteps | None:
        """What makes a step of all there is in ``tensordict``; None where a step is more than that."""
        state = self.base_state
        rows: Any = state.row_steps
        if rows is Unknown:
            rows = self.row_steps
        if rows is None or type(tensordict) is not TensorDict or tensordict.batch_size != rows.batch_size:
            return None
        if "_step" in entries(tensordict) or self.is_closed or state.run_type_checks:
            return None
        # A batch comes from a library as it is: its first step is held against the specs.
        if rows.batch_size and "step" not in state.validated:
            return None
        return rows  # type: ignore[no-any-return]

    def forget_way(self) -> None:
        """Find out anew which way steps take: something that decides it has changed."""
        self.base_state.row_steps = self.base_state.row_problem = Unknown

    # -- rows -----------------------------------------------------------------------------------------------------

    def step_at(self, tensordict: TensorDictBase, rows: Any) -> TensorDictBase:
        """Act in some rows of the batch.

        Args:
            tensordict: ``[k]`` data with the actions of those rows.
            rows: ``[k]`` int64, indices into a one-dimensional batch; each at most once.

        Returns:
            ``tensordict`` with ``"next"``, batch size ``[k]``. Other rows are not touched.
        """
        return step_at(self, tensordict, rows)

    def reset_at(self, tensordict: TensorDictBase | None, rows: Any, *, env_info: Any = None) -> TensorDictBase:
        """Reset some rows of the batch.

        Args:
            tensordict: ``[k]`` data of those rows, or None.
            rows: ``[k]`` int64, indices into a one-dimensional batch; each at most once.
            env_info: ``[k]`` values that fit ``env_info_spec``.

        Returns:
            ``[k]`` data of the rows after their reset.
        """
        return reset_at(self, tensordict, rows, env_info=env_info)

    # -- seeds and actions ----------------------------------------------------------------------------------------

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the environment and its random actions; holds from the next reset on.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: return ``seed`` itself instead of the next one.

        Returns:
            The seed to give to the next environment, so that one number seeds a whole batch.
        """
        following = None if seed is None else next_seed(seed)
        self.seed_actions(seed)
        self._set_seed(seed)
        return seed if static_seed else following

    def seed_actions(self, seed: int | None) -> None:
        """Seed random actions alone; None leaves them to torch's global generator."""
        self.base_state.generator = None if seed is None else torch.Generator().manual_seed(int(seed))

    def action_generator(self) -> torch.Generator:
        """The generator of random actions: the one ``set_seed`` seeded, or a new one drawn from torch's global one."""
        generator = self.base_state.generator
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), device=CPU)))
        return generator

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions into ``tensordict`` and return it.

        Args:
            tensordict: data to write into, of the environment's batch size; by default a new one. An environment that
                is not batch-locked draws for whatever batch size it has.

        Returns:
            ``tensordict`` with an entry of the spec's shape and dtype at each of ``action_keys``.
        """
        return draw_actions(self, tensordict, self.base_state.generator)

    def rand_step(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """``rand_action`` followed by ``step``; without ``tensordict`` it acts on nothing but the action."""
        return self.step(self.rand_action(tensordict))

    def all_actions(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Every action there is, of batch size ``[cardinality, *B]``, all rows alike; masks of the spec count.

        Args:
            tensordict: data to reset the environment from first, for masks that depend on the state; to its state
                where the environment supports that.

        Raises:
            NotSupported: the actions are not countable.
        """
        if tensordict is not None:
            self.reset(tensordict, set_state=True if self.supports_set_state else None)
        actions: TensorDictBase = self.full_action_spec.enumerate(use_mask=True)
        return actions

    def cardinality(self, tensordict: TensorDictBase | None = None) -> int | float:
        """How many actions there are, those of all keys combined, for one row; infinite for continuous ones.

        Override it where that depends on the state in ``tensordict``, which is not read here.
        """
        total: int | float = 1
        for leaf in self.full_action_spec.values(include_nested=True, leaves_only=True):
            total *= leaf.cardinality()
        return total

    # -- rollouts -------------------------------------------------------------------------------------------------

    def rollout(
        self,
        max_steps: int,
        policy: Any = None,
        callback: Callable[[EnvBase, TensorDictBase], Any] | None = None,
        *,
        actions: Any = None,
        auto_reset: bool = True,
        auto_cast_to_device: bool = False,
        break_when_any_done: bool | None = None,
        break_when_all_done: bool | None = None,
        return_contiguous: bool | None = False,
        tensordict: TensorDictBase | None = None,
        set_truncated: bool = False,
        out: TensorDictBase | None = None,
        trust_policy: bool = False,
        storing_device: torch.device | str | None = None,
        set_state: bool | None = None,
    ) -> TensorDictBase:
        """Act for up to ``max_steps`` steps and return them.

        Args:
            max_steps: how many steps at most.
            policy: see :func:`~steppe.envs.as_policy`; what it returns is added to the root. By default random
                actions, drawn in blocks from the generator that ``set_seed`` seeds, the same in every class, so that
                one seed gives one data set; without a seed they follow torch's global generator.
            callback: called as ``callback(env, td)`` after each step.
            actions: actions to play instead of a policy: an iterable with one entry for each step. Where it has a
                length, that limits ``max_steps``.
            auto_reset: reset first. False needs ``tensordict``, whose rows that have ended are reset.
            auto_cast_to_device: move data to the policy's device and back.
            break_when_any_done: stop when a row has ended (default). False: reset it and go on.
            break_when_all_done: stop when all rows have ended; until then rows that ended repeat their last values.
            return_contiguous: True stacks or says why it cannot; False stacks where shapes allow and is lazy otherwise.
            tensordict: data to start from.
            set_truncated: mark the last step as truncated.
            out: where to write the result.
            trust_policy: the policy takes and returns a TensorDict; skip the adapter.
            storing_device: where the result is kept.
            set_state: how the first reset takes ``tensordict``; see :meth:`reset`.

        Returns:
            Data of batch size ``[*B, T]``, last dimension named ``"time"``, ``T <= max_steps``.

        Raises:
            TypeError: both ``break_when_any_done`` and ``break_when_all_done``.
            PolicyError, ActionError: the policy does not fit.
        """
        plan = plan_rollout(
            self,
            max_steps,
            policy=policy,
            callback=callback,
            actions=actions,
            auto_reset=auto_reset,
            auto_cast_to_device=auto_cast_to_device,
            break_when_any_done=break_when_any_done,
            break_when_all_done=break_when_all_done,
            return_contiguous=return_contiguous,
            tensordict=tensordict,
            set_truncated=set_truncated,
            out=out,
            trust_policy=trust_policy,
            storing_device=storing_device,
            set_state=set_state,
        )
        return finish_rollout(plan, run_rollout(self, plan))

    # -- specs and sample data ------------------------------------------------------------------------------------

    def fake_tensordict(self) -> TensorDictBase:
        """Zeros of everything that one step holds, root and ``next``: what buffers are made from."""
        root: TensorDictBase = self.full_observation_spec.zero()
        for spec in (self.full_done_spec, self.full_state_spec, self.full_action_spec):
            root.update(spec.zero())
        following = self.full_observation_spec.zero()
        following.update(self.full_reward_spec.zero()).update(self.full_done_spec.zero())
        root.set("next", following)
        return root

    def auto_specs_(
        self,
        policy: Callable[[TensorDictBase], TensorDictBase],
        *,
        tensordict: TensorDictBase | None = None,
        action_key: Any = "action",
        done_key: Any = None,
        observation_key: Any = None,
        reward_key: Any = "reward",
    ) -> EnvBase:
        """Replace all specs by those of the data of two steps; for an environment whose specs nobody has written.

        What data does not show is left open: leaves are Unbounded (NonTensor for what is no tensor), actions too, and
        sizes that differ between the steps are dynamic.

        Args:
            policy: takes a TensorDict and returns it with the action.
            tensordict: data to reset from; its entries become the state spec.
            action_key: one key or a list of keys that the policy writes.
            done_key: one key or a list of keys; by default whatever is called done, terminated or truncated.
            observation_key: one key or a list of keys; by default all that ``_step`` returns beside reward and done.
            reward_key: one key or a list of keys.

        Returns:
            The environment itself.

        Raises:
            SpecError: the policy writes no action, or ``_step`` returns no reward.
        """
        infer_specs(
            self,
            policy,
            tensordict=tensordict,
            action_key=action_key,
            done_key=done_key,
            observation_key=observation_key,
            reward_key=reward_key,
        )
        return self

    def spec_hint(self, key: Any) -> str:
        """What errors add about an entry that is not as its spec says: whose it is, where the environment knows more.

        Args:
            key: of the entry, without ``"next"``.
        """
        return ""

    def check_env_specs(self, *args: Any, **kwargs: Any) -> None:
        """Hold a few random steps against the specs; see :func:`~steppe.envs.check_env_specs`."""
        from steppe.envs.checks.env_specs import check_env_specs

        check_env_specs(self, *args, **kwargs)

    def add_truncated_keys(self) -> EnvBase:
        """Add a ``truncated`` entry at each done level that lacks one; returns the environment."""
        spec = self.full_done_spec.clone()
        for group in done_groups(spec):
            if "truncated" not in group.names:
                spec[group.key("truncated")] = spec[group.key("done")].clone()
        self.full_done_spec = spec
        return self

    # -- life -----------------------------------------------------------------------------------------------------

    def append_transform(self, transform: Any) -> Any:
        """Return a :class:`~steppe.transforms.TransformedEnv` of this environment with ``transform`` in it."""
        from steppe.transforms import TransformedEnv

        return TransformedEnv(self, transform)

    def check_in_batch(self) -> None:
        """Refuse to be inside a batch, where the environment cannot work there; called by the batch that made it."""

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Release what the environment holds. Calling it again does nothing.

        Args:
            raise_if_closed: raise where it is closed already.

        Raises:
            ClosedError: it is closed already and ``raise_if_closed`` is set.
        """
        if self.is_closed and raise_if_closed:
            raise ClosedError(f"{type(self).__name__} is closed already.")
        self.base_state.is_closed = True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close(raise_if_closed=False)

    def to(self, device: Any) -> Any:  # type: ignore[override]
        """Move specs, parameters and the data to come to ``device``; returns the environment."""
        device = torch.device(device)
        if device == self.device:
            return self
        self.base_state.device = device
        nn.Module.to(self, device)
        self._assign_specs_again(lambda spec: spec.to(device))
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Not a function: an environment that is called was meant to be a factory."""
        raise NotSupported(
            f"{type(self).__name__} is an environment, not a factory, and cannot be called. "
            "Pass a function that makes one: ParallelEnv(4, lambda: make())."
        )

    def compile(self, warmup: int | None = None, **kwargs: Any) -> Any:
        """Let ``_step`` be compiled by ``torch.compile``, for an environment of tensor operations.

        Copies and pickles of the environment are not compiled.

        Args:
            warmup: how many steps to take before that as they are.
            **kwargs: for ``torch.compile``: ``backend``, ``mode``, ``fullgraph``, ...

        Returns:
            The environment itself.

        Where the steps do not go through ``_step``, those of an array environment and of a batch, nothing is compiled,
        and one warning says why.
        """
        compile_step(self, EnvBase, warmup, kwargs)
        return self

    def eager(self) -> Any:
        """Undo :meth:`compile`; returns the environment."""
        forget_compiled_step(vars(self))
        return self

    def empty_cache(self) -> None:
        """Forget what was derived from the specs."""
        self.specs_changed()

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "base_state": copy.copy(self.base_state)}
        forget_compiled_step(state)
        return state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_size={tuple(self.batch_size)}, device={self.device})"

    # -- batches --------------------------------------------------------------------------------------------------

    @classmethod
    def make_parallel(cls, create_env_fn: Any, *, num_envs: int = 1, **kwargs: Any) -> Any:
        """Return ``ParallelEnv(num_envs, create_env_fn, **kwargs)``; see :class:`~steppe.batched.ParallelEnv`."""
        from steppe.batched import ParallelEnv

        return ParallelEnv(num_envs, create_env_fn, **kwargs)

    def configure_parallel(self, **kwargs: Any) -> Any:
        """Change how the workers of a :class:`~steppe.batched.ParallelEnv` run, before they start.

        Raises:
            NotSupported: there are no workers.
        """
        raise NotSupported(
            f"{type(self).__name__} has no workers to configure. Give {sorted(kwargs) or 'such arguments'} to "
            "ParallelEnv."
        )

    # -- other libraries ------------------------------------------------------------------------------------------

    @classmethod
    def register_gym(
        cls,
        id: str,
        *,
        entry_point: str | Callable[..., Any] | None = None,
        transform: Any = None,
        to_numpy: bool = False,
        **kwargs: Any,
    ) -> None:
        """Let ``gymnasium.make(id)`` (or gym's) make environments of this class.

        >>> PendulumEnv.register_gym("Swing-v0", max_episode_steps=200)  # doctest: +SKIP

        Args:
            id: what the library's ``make`` will know it by.
            entry_point: what makes the environment instead of this class: an id of steppe's, or a callable.
            transform: appended to the environment, a clone for each.
            to_numpy: give observations as numpy arrays instead of tensors.
            **kwargs: ``backend``, ``info_keys``, ``max_episode_steps``, ``reward_threshold``, ``nondeterministic``,
                ``order_enforce``, ``autoreset``, ``disable_env_checker`` and ``apply_api_compatibility``, see
                ``steppe_gym.register_gym``; others are for the environment. ``gymnasium.make`` takes ``transform``,
                ``info_keys`` and ``to_numpy`` too.

        Raises:
            PluginNotFound: steppe-gym is not installed.
        """
        from steppe.registry import make_env, register_with_library

        made = cls if entry_point is None else entry_point
        if transform is None:
            register_with_library("gym", id, made, to_numpy=to_numpy, **kwargs)
            return

        def transformed(**given: Any) -> Any:
            env = make_env(made, **given) if isinstance(made, str) else made(**given)
            return env.append_transform(transform.clone() if hasattr(transform, "clone") else transform)

        register_with_library("gym", id, transformed, to_numpy=to_numpy, **kwargs)

    # -- collectors -----------------------------------------------------------------------------------------------

    def register_collector(self, collector: Any) -> None:
        """Remember, weakly, the collector that steps this environment, for transforms that ask it something."""
        self.base_state.collector = weakref.ref(collector)

    @property
    def collector(self) -> Any:
        """The collector that steps this environment, or None."""
        reference = self.base_state.collector
        return None if reference is None else reference()

    # -- shared pieces --------------------------------------------------------------------------------------------

    @property
    def done_groups(self) -> list[Any]:
        """The levels of the data that end by themselves, the root first: a list of :class:`~steppe.envs.DoneGroup`."""
        return self.cached("groups", lambda: done_groups(self.full_done_spec))

    def is_validated(self, what: str) -> bool:
        """Whether the data of a first ``"step"`` or ``"reset"`` has been held against the specs."""
        return what in self.base_state.validated

    def check_action(self, tensordict: TensorDictBase, *, rows: Any = None) -> None:
        """Hold the actions in ``tensordict`` against their specs; one whose dtype is another is converted there.

        Args:
            tensordict: data with the actions; where it has a mask ``"_step"``, only rows that are True count.
            rows: ``[k]``, the rows of the batch that the data is of, where it is not of all.

        Raises:
            ActionError: one is missing, or does not fit.
        """
        self._expectation.check_action(tensordict, rows=rows)

    @property
    def _expectation(self) -> Expectation:
        return self.cached("expectation", self._make_expectation)

    def _make_expectation(self) -> Expectation:
        self._check_disjoint()
        return Expectation(self)

    def check_open(self, what: str) -> None:
        """Raise ClosedError where the environment is closed; ``what`` was called, for errors."""
        if self.base_state.is_closed:
            raise ClosedError(f"{type(self).__name__}.{what} was called after close(): make a new environment.")

    def check_batch(self, tensordict: TensorDictBase, what: str) -> None:
        """Raise SpecError where data does not have the environment's batch size; ``what`` was called, for errors."""
        found, own = tensordict.batch_size, self.batch_size
        if found == own or (not self._batch_locked and not own):
            return
        raise SpecError(
            f"{type(self).__name__}.{what} needs data of batch size {tuple(own)}, found {tuple(found)}."
            + ("" if what == "step" else " Make it with TensorDict({...}, batch_size=env.batch_size).")
        )


def _rebatched(spec: Composite, old: torch.Size, new: torch.Size) -> Composite:
    """A spec with another batch size."""
    for _ in old:
        spec = spec[0]
    return spec.expand(torch.Size((*new, *spec.shape)))
