"""ArrayEnv: environments of CPU libraries, which write numpy rows of storage instead of building TensorDicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase

from steppe.envs.array.row_layout import RowLayout, layout_problem
from steppe.envs.array.row_steps import RowSteps
from steppe.envs.array.row_writer import EnvRows, RowWriter
from steppe.envs.base import EnvBase
from steppe.envs.data_types import Array
from steppe.envs.env_info import native_info
from steppe.envs.seeding import system_seed
from steppe.envs.state import Unknown
from steppe.errors import NotSupported

__all__ = ["ArrayEnv"]

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
#: What a row writer calls, which is to be another one from then on.
_METHODS = (*_TENSORDICT_METHODS, "step_into", "bind_step", "reset_into", "take_seed")


class ArrayEnv(EnvBase):
    """One environment (no batch, on the CPU) whose data is written straight into rows of numpy arrays.

    A subclass sets its specs like any environment and writes two methods:

    * ``reset_into(out, seed, env_info)``: begin an episode. ``out`` maps each observation key (a string, or a tuple for
      a nested one) to a numpy view, of the shape and dtype of its spec, that the observation is copied into:
      ``out["observation"][...] = obs``, or ``write_row(out, "observation", obs)``, which refuses another shape instead
      of repeating the value. All of it is written each time. ``seed`` is the seed to reset with, or None to go on with
      the generator as it is. ``env_info`` is a dict of what the caller passed for this reset, or None.
    * ``step_into(action, out) -> (terminated, truncated)``: act. ``action`` is an int for a single discrete action, an
      array of the spec's dtype otherwise, and a dict of these for several action keys; do not keep it. ``out`` has the
      reward too: ``out["reward"][0] = reward``. Two Python bools come back; the done entries are written from them.

    ``step``, ``reset`` and ``rollout``, batches and collectors then move no tensors per step. A subclass that overrides
    ``_step``, ``_reset`` or a ``read_*`` method, or an instance that is given one, is stepped through that method
    instead: slower, and equally right. The two paths give equal data.

    An environment whose data has no fixed place (text, sizes that vary, groups of agents that end alone) has no array
    path: ``row_writer`` is None, ``row_problem`` says why, and ``_step`` and ``_reset`` must be defined.
    """

    _pending_seed: int | None = None

    # -- what a subclass writes -----------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, Array], seed: int | None, env_info: dict[str, Any] | None) -> None:
        """Begin an episode and write its first observations into ``out``.

        Args:
            out: a numpy view ``[*shape]`` for each observation, of the shape and dtype of its spec, without the
                batch. Write all of it: what is there before may be anything.
            seed: of ``set_seed``, at the first reset after it; otherwise None.
            env_info: values that fit ``env_info_spec``, as arrays, where the caller gave some; otherwise None.
        """
        raise NotSupported(f"{type(self).__name__} does not define reset_into(out, seed, env_info).")

    def step_into(self, action: Any, out: dict[Any, Array]) -> tuple[bool, bool]:
        """Act, and write observations and reward into ``out``.

        Args:
            action: the native action: an int for a single one-hot or categorical one, otherwise an array ``[*shape]``
                of the spec's dtype, which must not be kept; a dict of these where there are several keys.
            out: a numpy view for each observation, as in :meth:`reset_into`, and for each reward.

        Returns:
            ``(terminated, truncated)``: two bools.
        """
        raise NotSupported(f"{type(self).__name__} does not define step_into(action, out).")

    def bind_step(self, out: dict[Any, Array]) -> Callable[[Any, Any], tuple[bool, bool]]:
        """Prepare steps that write one row again and again: a rollout's, or the one of a batch.

        To be overridden where looking up the row's views, and what else never changes, takes a good part of a step.

        Args:
            out: what :meth:`step_into` will be given.

        Returns:
            ``step_into``, or a function ``(action, out)`` that does the same for this ``out`` alone. It has to follow
            what changes about the environment. A subclass that overrides ``step_into`` alone is not asked for it.
        """
        return self.step_into

    def place_of_call(self, method: str) -> str:
        """Say where an error about a value happened: the environment and the call, ``"step"`` or ``"reset"``.

        To be overridden by a wrapper that knows more: which step of the episode it was. Called for errors alone.
        """
        return f"{self!r}.{method}"

    # -- which way ------------------------------------------------------------------------------------------------

    @property
    def row_problem(self) -> str | None:
        """Why steps take the tensordict path: what was overridden, or what its data is; None where they do not."""
        problem: Any = self.base_state.row_problem
        if problem is Unknown:
            problem = self.base_state.row_problem = self._find_row_problem()
        return problem  # type: ignore[no-any-return]

    def _find_row_problem(self) -> str | None:
        mro = type(self).__mro__
        definer = next(cls for cls in mro if "step_into" in vars(cls))
        if definer is ArrayEnv:
            return f"{type(self).__name__} defines no step_into."
        below = mro[: mro.index(definer)]
        for name in _TENSORDICT_METHODS:
            if name in vars(self) or any(name in vars(cls) for cls in below):
                return f"{name} is overridden."
        return self.rows_problem()

    def rows_problem(self) -> str | None:
        """Say why the data has no place in rows of arrays, or return None; a wrapper adds what it cannot copy."""
        if self.state_keys:
            return "the environment takes a state."
        return "it is a batch itself." if self.batch_size else layout_problem(self)

    @property
    def row_writer(self) -> EnvRows | None:
        """Writes the row of this environment; None where it takes the tensordict path (``row_problem`` says why)."""
        if self.row_problem is not None:
            return None
        writer: EnvRows = self.cached("row_writer", self._make_writer)
        return writer

    def _make_writer(self) -> EnvRows:
        self._check_disjoint()
        return EnvRows([self], RowLayout.of(self))

    def _forced_steps(self) -> RowSteps:
        """The same, also where a subclass that calls ``super()._step`` has left the array path."""
        steps = self.cached("forced_steps", lambda: RowSteps(self._make_writer()))
        assert isinstance(steps, RowSteps)
        return steps

    @classmethod
    def join_rows(cls, envs: list[Any]) -> RowWriter | None:
        """One writer for environments of a batch, which write their rows one after another."""
        writers = [env.row_writer for env in envs]
        if None in writers or any(env.full_action_spec != envs[0].full_action_spec for env in envs[1:]):
            return None
        return EnvRows(envs, writers[0].layout)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _METHODS:
            self.row_writer_changed()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in _METHODS:
            self.row_writer_changed()

    def row_writer_changed(self) -> None:
        super().row_writer_changed()
        cache = self.base_state.cache
        if cache is not None:
            cache.pop("row_writer", None)
            cache.pop("forced_steps", None)

    # -- seeds ----------------------------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        # A reset without a seed goes on with the random numbers of the last one.
        self._pending_seed = system_seed() if seed is None else seed

    def take_seed(self) -> int | None:
        """Return the seed that ``set_seed`` left for the next reset, once."""
        seed = self._pending_seed
        if seed is not None:
            self._pending_seed = None
        return seed

    # -- the same on TensorDicts, for callers that need the general path -------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        refuse_seed(kwargs)
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.reset does not take {sorted(kwargs)}: reset_into gets what "
                "reset(env_info={...}) is given, as env_info_spec describes it."
            )
        info = tensordict.get("env_info", None) if tensordict is not None else None
        fresh = self._forced_steps().reset(env_info=native_info(info))
        return fresh.to(self.device) if self._elsewhere() else fresh

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        source = tensordict.select(*self.action_keys).to("cpu") if self._elsewhere() else tensordict
        following = self._forced_steps().step(source)
        return following.to(self.device) if self._elsewhere() else following

    def _elsewhere(self) -> bool:
        return self.device is not None and self.device.type != "cpu"


def refuse_seed(kwargs: dict[str, Any]) -> None:
    """Raise a TypeError where a reset was given a seed, which is not among what an environment's ``_reset`` takes."""
    if "seed" in kwargs:
        raise TypeError("reset takes no seed: env.set_seed(seed) sets the seed of the next reset.")
