"""Timer: measure the time of steps, policy calls and resets."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.envs import BoundWriter, Ended, EnvInfos
from steppe.errors import SpecError
from steppe.specs import CPU, Unbounded
from steppe.transforms import EnvSpecs, Hooks, InnerWriter, PlannedTransform, RowHooks, as_keys, names_of, set_beside

__all__ = ["Timer"]


class Timer(PlannedTransform):
    """Measure the time of each step, policy call and reset, in seconds.

    Adds three entries of the batch size ``[*B]``, of torch's default dtype:

    * ``time_step``: duration of the step, in ``next``; 0 after a reset.
    * ``time_policy``: time between the previous result and the call of the step, in ``next``; 0 after a reset.
    * ``time_reset``: duration of the reset; 0 in ``next``.

    The time of a step includes the environment and the transforms before this one. All rows of a batch have the time of
    their common call. In a rollout without a policy, ``time_policy`` is the time between two steps.

    >>> from steppe import Timer, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), Timer())
    >>> len(env.rollout(3))
    3

    Args:
        out_keys: the three keys, in this order.
        time_key: prefix of the default keys.

    Attributes:
        clock: function that returns seconds; a subclass may replace it.

    Raises:
        SpecError: the number of ``out_keys`` is not three.
    """

    needs_env = True
    does = "measures the time of its environment"
    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self, out_keys: NestedKey | Sequence[NestedKey] | None = None, time_key: str = "time") -> None:
        super().__init__()
        keys: list[Any] = (
            [f"{time_key}_{name}" for name in ("step", "policy", "reset")] if out_keys is None else as_keys(out_keys)
        )
        if len(keys) != 3:
            raise SpecError(f"Timer: out_keys must be three keys, of the step, the policy and the reset; found {keys}.")
        self.time_key = time_key
        self.time_step_key, self.time_policy_key, self.time_reset_key = keys
        self._clear_times()

    @property
    def out_keys(self) -> list[Any]:
        """The keys of the times of steps, policy calls and resets."""
        return [self.time_step_key, self.time_policy_key, self.time_reset_key]

    def _clear_times(self) -> None:
        #: Times of the last result and of the running call, and duration of the policy call between them.
        self.__dict__.update(_returned=None, _called=None, _policy=0.0)

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        dtype = torch.get_default_dtype()
        for key in self.out_keys:
            shape = self._shape(specs, key)
            set_beside(specs.observation, key, Unbounded(shape, device=specs.device, dtype=dtype), specs.observation)
        return specs

    @staticmethod
    def _shape(specs: EnvSpecs, key: Any) -> Any:
        above = names_of(key)[:-1]
        level = specs.observation.get(above, None) if above else None
        return specs.batch_size if level is None else level.shape

    def hooks(self, specs: EnvSpecs) -> Hooks:
        state, clock, dtype = self.__dict__, self.clock, torch.get_default_dtype()
        batch = len(specs.batch_size)
        tails = [self._shape(specs, key)[batch:] for key in self.out_keys]

        def write(data: TensorDictBase, *seconds: float) -> TensorDictBase:
            device = data.device or CPU
            for key, tail, value in zip(self.out_keys, tails, seconds, strict=True):
                data.set(key, torch.full((*data.batch_size, *tail), value, dtype=dtype, device=device))
            return data

        def call(td: TensorDictBase) -> TensorDictBase:
            self._begin_step()
            return td

        def call_reset(td: TensorDictBase | None) -> TensorDictBase | None:
            self._begin_reset()
            return td

        def elapsed() -> float:
            called, now = state["_called"], clock()
            # A batch may reset rows in the call of their step: the time of their reset begins here.
            state["_returned"] = state["_called"] = now
            return 0.0 if called is None else now - called

        def bind(root: Any, following: Any) -> Any:
            times, first = ([data[key] for key in self.out_keys] for data in (following, root))

            def step() -> bool:
                for array, value in zip(times, (elapsed(), state["_policy"], 0.0), strict=True):
                    array.fill(value)
                return False

            def reset(at: Any) -> None:
                for array, value in zip(first, (0.0, 0.0, elapsed()), strict=True):
                    for row in at:
                        array[row] = value

            return step, reset

        return Hooks(
            step=lambda _, following: write(following, elapsed(), state["_policy"], 0.0),
            reset=lambda _, fresh: write(fresh, 0.0, 0.0, elapsed()),
            inverse=call,
            before_reset=call_reset,
            reads_root=False,
            rows=RowHooks(bind, wrap=_TimedWriter),
        )

    def _begin_step(self) -> None:
        state = self.__dict__
        state["_called"] = now = self.clock()
        state["_policy"] = 0.0 if state["_returned"] is None else now - state["_returned"]

    def _begin_reset(self) -> None:
        self.__dict__["_called"] = self.clock()

    def __getstate__(self) -> dict[str, Any]:
        # Clocks of different processes cannot be compared.
        return {**super().__getstate__(), "_returned": None, "_called": None, "_policy": 0.0}

    def shared_key(self) -> Any:
        return (type(self), *self.out_keys)

    def _repr_keys(self) -> Any:
        return ("time_step_key", "time_policy_key", "time_reset_key")


class _TimedWriter(BoundWriter):
    """A bound writer that tells the timers of its rows when a call begins."""

    def __init__(self, inner: InnerWriter) -> None:
        self._inner, self.resets_in_step = inner.writer, inner.writer.resets_in_step
        self._timers = [part for part in inner.parts if isinstance(part, Timer)]

    def step(self, actions: Any, at: Sequence[int] | None = None) -> Ended:
        for timer in self._timers:
            timer._begin_step()
        return self._inner.step(actions, at)

    def step_and_reset(self, actions: Any, env_info: EnvInfos = None) -> Ended:
        if not self.resets_in_step:
            return super().step_and_reset(actions, env_info)
        for timer in self._timers:
            timer._begin_step()
        return self._inner.step_and_reset(actions, env_info)

    def reset(self, at: Sequence[int], env_info: EnvInfos = None) -> None:
        for timer in self._timers:
            timer._begin_reset()
        self._inner.reset(at, env_info)
