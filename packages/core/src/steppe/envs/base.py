"""EnvBase: the contract of every environment."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.envs import compiling
from steppe.envs.checks import spec_check
from steppe.envs.env_meta import EnvMeta
from steppe.envs.reset_and_step import check_methods
from steppe.envs.rollout.code_path import run_rollout
from steppe.envs.rollout.rollout_plan import RolloutPlan, finish
from steppe.envs.seeding import random_state_kept
from steppe.envs.seeds_and_actions import SeedsAndActions
from steppe.envs.state import BaseState
from steppe.errors import ClosedError, NotSupported, StateError

__all__ = ["EnvBase"]


class EnvBase(SeedsAndActions, metaclass=EnvMeta):
    """An environment: specs, ``reset``, ``step``, ``set_seed``.

    A subclass assigns ``observation_spec``, ``action_spec``, ``reward_spec`` and ``done_spec`` (shapes include
    ``batch_size``) and writes three methods:

    * ``_reset(tensordict) -> TensorDict``: return the first data of an episode: observations, optionally done entries,
      no reward. ``tensordict`` is None or the argument of ``reset``. In automatic resets, after the end of an episode,
      it holds masks and ``env_info`` alone, so that no state of the last episode is used. If it holds a mask
      ``"_reset"`` (``[*B, 1]``, one for each done level), only rows that are True have to be reset; the data that is
      returned for other rows is dropped. A class with ``_supports_set_state = True`` takes ``set_state`` too, see
      ``reset``.
    * ``_step(tensordict) -> TensorDict``: return observations, reward and done entries after the action in
      ``tensordict``, in a new TensorDict. ``done`` may be left out if ``terminated`` is there, and the other way round.
      Rewards and done entries are reshaped to their specs if the number of elements matches. All entries are cast to
      the dtypes of their specs if those are floating or hold the same values.
    * ``_set_seed(seed) -> None``: seed the generator. The seed takes effect in the next reset.

    Edge cases:

    * ``step`` after the end of an episode is undefined unless the environment defines it; reset first.
    * ``reset`` drops the current episode. ``reset(td)`` writes into ``td`` and returns it without masks.
    * data passed to ``step`` and ``reset`` has the batch size of the environment, unless it is not ``batch_locked``.
    * the environment never changes a tensor after it has returned it.

    Args:
        device: the device of inputs and outputs; None if the data has no fixed device.
        batch_size: leading dimensions of all data.
        run_type_checks: check every step against the specs, not only the first, and refuse data of another dtype.
        allow_done_after_reset: accept an episode that has ended when it begins.
        spec_locked: lock the specs at the end of the outermost ``__init__``; until then they can be edited in place.
        auto_reset: the environment resets itself in ``_step``: where done is True, the observations that ``_step``
            returns are the first of the next episode. The result then is an :class:`~steppe.transforms.AutoResetEnv`
            of it with an ``AutoResetTransform`` (steppe-time), which moves them to the next root.
        auto_reset_replace: whether that transform puts NaN (-1 for whole numbers, False for bool) in the place of the
            last observation of such an episode; False leaves the first observation of the next episode there.
        compile: True, or a dict of arguments, calls :meth:`compile` at the end.
        policy: a module that will act. The transforms that it needs are appended if they are missing: an
            ``InitTracker``, and the primers of its parts (``make_tensordict_primer()``). The result then is a
            :class:`~steppe.transforms.TransformedEnv`.

    Every class takes ``spec_locked``, ``auto_reset``, ``auto_reset_replace``, ``compile`` and ``policy``, even if its
    ``__init__`` does not.
    """

    #: The state that this class keeps.
    base_state: BaseState

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
        state.auto_reset, state.auto_reset_replace = auto_reset, auto_reset_replace
        state.generator = state.env_info_spec = None
        self._assign_specs_again()

    def __new__(
        cls, *args: Any, _inplace_update: bool = False, _batch_locked: bool | None = None, **kwargs: Any
    ) -> Any:
        """Make the object; ``_batch_locked`` sets the attribute of that name, ``_inplace_update`` has no meaning."""
        env = super().__new__(cls)
        vars(env)["base_state"] = BaseState()  # read whenever an attribute is set
        if _batch_locked is not None:
            env._batch_locked = _batch_locked
        return env

    def _finish_construction(
        self, *, policy: Any = None, compile: bool | dict[str, Any] | None = None, **settings: bool | None
    ) -> Any:
        """Finish the construction, after the outermost ``__init__``; takes the arguments that it does not name."""
        state = self.base_state
        if not state.initialized:
            raise StateError(
                f"{type(self).__name__}.__init__ has not called super().__init__(). Write it as the first line: "
                "super().__init__(**kwargs)."
            )
        check_methods(self)
        for name, value in settings.items():  # spec_locked, auto_reset, auto_reset_replace
            if value is not None:
                setattr(state, name, value)
        state.constructed = True
        self.settle_specs()
        env: Any = self._resetting_itself() if state.auto_reset else self
        if policy is not None:
            env = env._prepared_for(policy)
        if compile is not None and compile is not False:
            if compile is not True and not isinstance(compile, dict):
                raise TypeError(f"compile is True, or a dict of arguments for env.compile(), found {compile!r}.")
            env.compile(**({} if compile is True else compile))
        return env

    def _resetting_itself(self) -> Any:
        """Return this environment, which resets itself, with the transform that moves first observations."""
        if self.steps_others:
            raise TypeError(
                f"{type(self).__name__} steps other environments: give auto_reset=True to those that reset themselves."
            )
        from steppe import transforms

        installed: Any = transforms  # the class is found by name, in steppe-time
        move = installed.AutoResetTransform(replace=self.base_state.auto_reset_replace)
        return transforms.AutoResetEnv(self, move)

    def _prepared_for(self, policy: Any) -> Any:
        """Return this environment with the transforms that a policy needs, or itself if it has all of them."""
        from steppe.transforms import transforms_for_policy

        env: Any = self
        for transform in transforms_for_policy(policy, self):
            env = env.append_transform(transform)
        return env

    # -- rollouts -------------------------------------------------------------------------------------------------

    def rollout(
        self,
        max_steps: int,
        policy: Any = None,
        callback: Callable[[EnvBase, TensorDictBase], object] | None = None,
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
            policy: see :func:`~steppe.envs.as_policy`; its output is added to the root. By default random actions,
                drawn in blocks from the generator that ``set_seed`` seeds, in the same way in every class, so that a
                seed always gives the same data; without a seed they follow torch's global generator.
            callback: called as ``callback(env, td)`` after each step.
            actions: actions to replay instead of a policy: an iterable with one entry for each step. Its length, if it
                has one, limits ``max_steps``.
            auto_reset: reset first. False needs ``tensordict``, whose rows that have ended are reset.
            auto_cast_to_device: move data to the policy's device and back.
            break_when_any_done: stop when a row has ended (default). False: reset it and go on.
            break_when_all_done: stop when all rows have ended; until then rows that ended repeat their last values.
            return_contiguous: True stacks or says why it cannot; False stacks where shapes allow and is lazy otherwise.
            tensordict: data to start from.
            set_truncated: mark the last step as truncated.
            out: where to write the result.
            trust_policy: the policy takes and returns a TensorDict; skip the adapter.
            storing_device: the device of the result.
            set_state: passed to the first reset; see :meth:`reset`.

        Returns:
            Data of batch size ``[*B, T]``, last dimension named ``"time"``, ``T <= max_steps``.

        Raises:
            TypeError: both ``break_when_any_done`` and ``break_when_all_done``.
            PolicyError, ActionError: the policy does not fit the environment.
            StateError: another thread used the environment during the rollout.
        """
        plan = RolloutPlan(
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
        uses = self.base_state.uses
        uses.note_run()
        run, before = object(), uses.takeovers
        try:
            uses.runs.add(run)
            result = run_rollout(plan)
            if uses.takeovers != before and self.batch_locked:
                raise StateError(
                    "Another thread reset or stepped the environment during this rollout, so its data would join two "
                    "episodes. Give each thread an environment of its own."
                )
        finally:
            uses.runs.discard(run)
            uses.note_run()
        result = finish(plan, result)
        if self.batch_size and out is None:
            self.base_state.returned(result[..., -1].get("next").detach().clone())
        return result

    # -- specs and data --------------------------------------------------------------------------------------------

    def settle_reward_spec(self, tensordict: TensorDictBase | None = None) -> None:
        """Find out whether the environment has a reward, by a reset and a step, if ``reward_spec`` was not assigned.

        An environment that assigns no ``reward_spec`` has a reward at ``"reward"``, unless its first step returns none.
        Code that lays out data before the first step calls this method. Random states are restored, except
        states of the environment itself that cannot be saved. If the environment cannot be stepped, nothing changes.

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

    check_env_specs = spec_check.check_env_specs

    # -- life -----------------------------------------------------------------------------------------------------

    def append_transform(self, transform: Any) -> Any:
        """Return a :class:`~steppe.transforms.TransformedEnv` of this environment with ``transform``."""
        from steppe.transforms import TransformedEnv

        return TransformedEnv(self, transform)

    def check_in_batch(self) -> None:
        """Raise an error if the environment does not work inside a batch; called by the batch that made it."""

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Release the resources of the environment. A second call does nothing.

        Args:
            raise_if_closed: raise an error if it is closed already.

        Raises:
            ClosedError: it is closed already, and ``raise_if_closed`` is set.
        """
        if self.is_closed and raise_if_closed:
            raise ClosedError(f"{type(self).__name__} is closed already.")
        self.base_state.is_closed = True
        self.base_state.changes += 1  # transforms around it must not step its rows any more

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close(raise_if_closed=False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raise an error: an environment was passed where a function that makes one is needed."""
        raise NotSupported(
            f"{type(self).__name__} is an environment, not a factory, and cannot be called. "
            "Pass a function that makes one: ParallelEnv(4, lambda: make())."
        )

    compile = compiling.compile_step

    def eager(self) -> Any:
        """Undo :meth:`compile`; returns the environment."""
        compiling.forget_compiled_step(vars(self))
        return self

    def empty_cache(self) -> None:
        """Clear everything that was derived from the specs."""
        self.specs_changed()

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "base_state": copy.copy(self.base_state)}
        compiling.forget_compiled_step(state)
        return state

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_size={tuple(self.batch_size)}, device={self.device})"

    # -- batches --------------------------------------------------------------------------------------------------

    @classmethod
    def make_parallel(cls, create_env_fn: Any, *, num_envs: int = 1, **kwargs: Any) -> Any:
        """Return ``ParallelEnv(num_envs, create_env_fn, **kwargs)``; see :class:`~steppe.batched.ParallelEnv`."""
        from steppe.batched import ParallelEnv

        return ParallelEnv(num_envs, create_env_fn, **kwargs)

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
        """Register this class in gymnasium (or gym), so that ``gymnasium.make(id)`` makes it.

        >>> PendulumEnv.register_gym("Swing-v0", max_episode_steps=200)  # doctest: +SKIP

        Args:
            id: the id in the library.
            entry_point: makes the environment instead of this class: an id of steppe, or a callable.
            transform: appended to the environment; each environment gets a clone.
            to_numpy: give observations as numpy arrays instead of tensors.
            **kwargs: ``backend``, ``info_keys``, ``max_episode_steps``, ``reward_threshold``, ``nondeterministic``,
                ``order_enforce``, ``autoreset``, ``disable_env_checker`` and ``apply_api_compatibility``, see
                ``steppe_gym.register_gym``; others are for the environment. ``gymnasium.make`` takes ``transform``,
                ``info_keys`` and ``to_numpy`` too.

        Raises:
            PluginNotFound: steppe-gym is not installed.
        """
        from steppe.registry import current

        options = {"transform": transform, "to_numpy": to_numpy, **kwargs}
        current().register_with_library("gym", id, cls if entry_point is None else entry_point, options)
