"""ArrayEnv: environments of CPU libraries, which write numpy rows of storage instead of building TensorDicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import array_rollout
from steppe.envs.array_plan import ArrayPlan
from steppe.envs.base import EnvBase
from steppe.envs.rollout import RolloutPlan
from steppe.errors import NotSupported
from steppe.storage import entries

__all__ = ["ArrayEnv", "ArrayPath"]

#: Overriding one of these, in a class below the one that defines step_into or on an instance, leaves the array path.
_TENSORDICT_METHODS = (
    "_step",
    "_reset",
    "read_obs",
    "read_reward",
    "read_done",
    "read_action",
    "_output_transform",
    "_reset_output_transform",
)
_UNKNOWN = object()


class ArrayPath(EnvBase):
    """An environment that may be able to write its data into rows of arrays, and is faster where it can.

    Base of :class:`ArrayEnv`, and of environments around one. ``array_plan`` says whether it can as it is now; without
    a plan everything goes the way of :class:`~steppe.envs.EnvBase`.
    """

    def reset_into(
        self, out: dict[Any, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None:
        """Begin an episode and write its first observations into ``out``.

        Args:
            out: a numpy view ``[*shape]`` for each observation, of the shape and dtype of its spec, without the
                batch. Write all of it: what is there before may be anything.
            seed: of ``set_seed``, at the first reset after it; otherwise None.
            env_info: values that fit ``env_info_spec``, as arrays, where the caller gave some; otherwise None.
        """
        raise NotSupported(f"{type(self).__name__} does not define reset_into(out, seed, env_info).")

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Act, and write observations and reward into ``out``.

        Args:
            action: the native action: an int for a single one-hot or categorical one, otherwise an array ``[*shape]``
                of the spec's dtype, which must not be kept; a dict of these where there are several keys.
            out: a numpy view for each observation, as in :meth:`reset_into`, and for each reward.

        Returns:
            ``(terminated, truncated)``: two bools.
        """
        raise NotSupported(f"{type(self).__name__} does not define step_into(action, out).")

    def take_seed(self) -> int | None:
        """Return the seed that ``set_seed`` left for the next reset, once."""
        raise NotSupported(f"{type(self).__name__} does not define take_seed().")

    # -- which path -----------------------------------------------------------------------------------------------

    @property
    def array_plan(self) -> ArrayPlan | None:
        """How data lies in arrays, or None where this environment takes the tensordict path."""
        plan = self.__dict__.get("_array_plan", _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self.__dict__["_array_plan"] = self._make_array_plan()
        return plan

    def _make_array_plan(self) -> ArrayPlan | None:
        raise NotImplementedError

    def _specs_changed(self) -> None:
        super()._specs_changed()
        self.__dict__.pop("_array_plan", None)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state.pop("_array_plan", None)
        return state

    # -- the array path of one environment ------------------------------------------------------------------------

    def reset(self, tensordict: TensorDictBase | None = None, *, env_info: Any = None, **kwargs: Any) -> TensorDictBase:
        plan = self.array_plan
        if plan is None or kwargs or tensordict is not None or env_info is not None:
            return super().reset(tensordict, env_info=env_info, **kwargs)
        self._check_open("reset")
        return plan.reset(self, None)

    def step(self, tensordict: TensorDictBase) -> TensorDictBase:
        plan = self.__dict__.get("_array_plan", _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self.array_plan
        if plan is None or type(tensordict) is not TensorDict or tensordict.batch_size:
            return super().step(tensordict)
        source = entries(tensordict)
        if "_step" in source or self.__dict__["is_closed"] or self.run_type_checks:
            return super().step(tensordict)
        following, _, _ = plan.step(self, tensordict)
        before = source.get("next")
        if before is not None:
            following = before.copy().update(following)
        plan.attach(tensordict, following)
        return tensordict

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        plan = self.__dict__.get("_array_plan", _UNKNOWN)
        if plan is _UNKNOWN:
            plan = self.array_plan
        if plan is None or type(tensordict) is not TensorDict or tensordict.batch_size:
            return super().step_and_maybe_reset(tensordict)
        source = entries(tensordict)
        if "_step" in source or "next" in source or self.__dict__["is_closed"] or self.run_type_checks:
            return super().step_and_maybe_reset(tensordict)
        following, terminated, truncated = plan.step(self, tensordict)
        plan.attach(tensordict, following)
        root = self.step_mdp(tensordict)
        if terminated or truncated:
            plan.reset(self, root)
        return tensordict, root

    def _run_rollout(self, plan: RolloutPlan) -> TensorDictBase:
        array_plan = self.array_plan
        if array_plan is not None and array_rollout.fits(self, array_plan, plan):
            return array_rollout.run(self, array_plan, plan)
        return super()._run_rollout(plan)


class ArrayEnv(ArrayPath):
    """One environment (no batch, on the CPU) whose data is written straight into rows of numpy arrays.

    A subclass sets its specs like any environment and writes two methods:

    * ``reset_into(out, seed, env_info)``: begin an episode. ``out`` maps each observation key (a string, or a tuple for
      a nested one) to a numpy view, of the shape and dtype of its spec, that the observation is copied into:
      ``out["observation"][...] = obs``. ``seed`` is the seed to reset with, or None to go on with the generator as it
      is. ``env_info`` is a dict of what the caller passed for this reset, or None.
    * ``step_into(action, out) -> (terminated, truncated)``: act. ``action`` is an int for a single discrete action, an
      array of the spec's dtype otherwise, and a dict of these for several action keys; do not keep it. ``out`` has the
      reward too: ``out["reward"][0] = reward``. Two Python bools come back; the done entries are written from them.

    ``step``, ``reset`` and ``rollout``, batches and collectors then move no tensors per step. A subclass that overrides
    ``_step``, ``_reset`` or a ``read_*`` method, or an instance that is given one, is stepped through that method
    instead: slower, and equally right. The two paths give equal data.

    An environment whose data has no fixed place (text, sizes that vary, groups of agents that end alone) has no array
    path: ``array_plan`` is None, and ``_step`` and ``_reset`` must be defined.
    """

    # -- which path -----------------------------------------------------------------------------------------------

    def _make_array_plan(self) -> ArrayPlan | None:
        return self._compile() if self._on_array_path() else None

    def _on_array_path(self) -> bool:
        if self.batch_size or self._auto_reset is not None or not self._array_capable():
            return False
        if self.device is not None and self.device.type != "cpu":
            return False
        mro = type(self).__mro__
        definer = next(cls for cls in mro if "step_into" in cls.__dict__)
        if definer is ArrayPath:
            return False
        below = mro[: mro.index(definer)]
        if any(name in cls.__dict__ for cls in below for name in _TENSORDICT_METHODS):
            return False
        return not any(name in self.__dict__ for name in _TENSORDICT_METHODS)

    def _array_capable(self) -> bool:
        """Whether the library's data can be written into arrays; a wrapper says no for what it cannot copy."""
        return ArrayPlan.problem(self) is None

    def _compile(self) -> ArrayPlan:
        self._check_disjoint()
        return ArrayPlan(self)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _TENSORDICT_METHODS:
            self.__dict__.pop("_array_plan", None)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in _TENSORDICT_METHODS:
            self.__dict__.pop("_array_plan", None)

    # -- seeds ----------------------------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        self.__dict__["_pending_seed"] = seed

    def take_seed(self) -> int | None:
        """Return the seed that ``set_seed`` left for the next reset, once."""
        seed: int | None = self.__dict__.pop("_pending_seed", None)
        return seed

    # -- the same as TensorDicts, for callers that need the general path ------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        info = tensordict.get("env_info", None) if tensordict is not None else None
        fresh = self._forced_plan().reset(self, None, env_info=native_info(info))
        return fresh.to(self.device) if self._elsewhere() else fresh

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        plan = self._forced_plan()
        source = tensordict.select(*self.action_keys).to("cpu") if self._elsewhere() else tensordict
        following, _, _ = plan.step(self, source)
        return following.to(self.device) if self._elsewhere() else following

    def _elsewhere(self) -> bool:
        return self.device is not None and self.device.type != "cpu"

    def _forced_plan(self) -> ArrayPlan:
        """The plan, also where a subclass that calls ``super()._step`` has left the array path."""
        plan = self._cached("forced_plan", self._compile)
        assert isinstance(plan, ArrayPlan)
        return plan


def native_info(info: TensorDictBase | None) -> dict[str, Any] | None:
    """One row of env_info as Python numbers and lists."""
    if info is None:
        return None
    return {str(key): value.tolist() if isinstance(value, torch.Tensor) else value for key, value in info.items()}
