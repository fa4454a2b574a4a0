"""ArrayEnv: environments of CPU libraries, which write numpy rows of storage instead of building TensorDicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase

from steppe.envs.array.row_layout import RowLayout, no_layout_reason
from steppe.envs.array.row_steps import RowSteps
from steppe.envs.array.row_writer import EnvInfo, EnvWriter, RowWriter
from steppe.envs.base import EnvBase
from steppe.envs.data_types import Array
from steppe.envs.env_info import info_for_library
from steppe.envs.overridden_methods import STEP_METHODS, first_overridden, overridden
from steppe.envs.seeding import system_seed
from steppe.errors import NotSupported
from steppe.specs import CPU, is_host

__all__ = ["ArrayEnv"]

#: Steps go through TensorDicts if one of these is overridden below the class that defines step_into, or on an instance.
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


class ArrayEnv(EnvBase):
    """One environment (no batch, on the CPU) whose data is written straight into rows of numpy arrays.

    A subclass sets its specs like any environment and writes two methods:

    * ``reset_into(out, seed, env_info)``: begin an episode. ``out`` maps each observation key (a string, or a tuple for
      a nested key) to a numpy view of the shape and dtype of its spec. Copy the observation into it:
      ``out["observation"][...] = obs``, or ``write_row(out, "observation", obs)``, which refuses another shape instead
      of repeating the value. Write all of it each time. ``seed`` is the seed to reset with, or None to continue with
      the current state of the generator. ``env_info`` is the dict that the caller passed for this reset, or None.
    * ``step_into(action, out) -> (terminated, truncated)``: act. ``action`` is an int for a single discrete action, an
      array of the spec's dtype otherwise, and a dict of these for several action keys. ``out`` has the reward
      too: ``out["reward"][0] = reward``. Return two Python bools, from which the done entries are written.

    ``step``, ``reset`` and ``rollout``, batches and collectors then move no tensors per step. If a subclass overrides
    ``_step``, ``_reset`` or a ``read_*`` method, or one of them is assigned to an instance, steps go through that
    method instead, which is slower. Both paths give equal data.

    Done entries of groups of agents are keys of ``out`` in both methods. An environment whose data has no fixed layout
    (text, sizes that vary, no done entry of the whole episode) has no array path: ``row_writer`` is None,
    ``no_row_writer_reason`` says why, and ``_step`` and ``_reset`` must be defined.
    """

    #: Whether ``step_into`` and ``reset_into`` also write loose entries (text, sizes that vary), by
    #: ``out[key][...] = value``. A batch then steps this environment on rows.
    writes_loose_entries: bool = False
    stepping_methods = EnvBase.stepping_methods.union(
        _TENSORDICT_METHODS, ("step_into", "bind_step", "reset_into", "take_seed")
    )
    _pending_seed: int | None = None

    # -- methods that a subclass defines --------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, Array], seed: int | None, env_info: EnvInfo | None) -> None:
        """Begin an episode and write its first observations into ``out``.

        Args:
            out: a numpy view ``[*shape]`` for each observation, of the shape and dtype of its spec, without the
                batch. Write all of it: the old content is arbitrary.
            seed: the seed of ``set_seed``, in the first reset after it; otherwise None.
            env_info: the values that the caller passed, which fit ``env_info_spec``; None if there are none.
        """
        raise NotSupported(f"{type(self).__name__} does not define reset_into(out, seed, env_info).")

    def step_into(self, action: Any, out: dict[Any, Array]) -> tuple[bool, bool]:
        """Act, and write observations and reward into ``out``.

        Args:
            action: the library action: an int for a single one-hot or categorical action, otherwise an array
                ``[*shape]`` of the spec's dtype, which the environment may keep; a dict of these for several action
                keys.
            out: a numpy view for each observation, as in :meth:`reset_into`, and for each reward.

        Returns:
            ``(terminated, truncated)``: two bools.
        """
        raise NotSupported(f"{type(self).__name__} does not define step_into(action, out).")

    def bind_step(self, out: dict[Any, Array]) -> Callable[[Any, Any], tuple[bool, bool]]:
        """Return a function that steps the environment and always writes the same row.

        Override it if looking up the views of the row, and other things that never change, takes much of a step.

        Args:
            out: the ``out`` of all calls of the function.

        Returns:
            ``step_into``, or a function ``(action, out)`` that does the same for this ``out`` alone. It must take
            changes of the environment into account. It is not used if a subclass overrides ``step_into`` alone.
        """
        return self.step_into

    def place_of_call(self, method: str) -> str:
        """Return where an error about a value happened: the environment and the call, ``"step"`` or ``"reset"``.

        A wrapper overrides it to add the number of the step, for example. It is called for errors alone.
        """
        return f"{self!r}.{method}"

    # -- code path ------------------------------------------------------------------------------------------------

    @property
    def shard_writer(self) -> EnvWriter | None:
        """The writer of its row in a shard of a batch: the ``row_writer``, or one that writes loose entries too."""
        if self.no_row_writer_reason is None or not self.writes_loose_entries:
            own: EnvWriter | None = self.row_writer
            return own
        writer: EnvWriter | None = self.cached("shard_writer", self._make_shard_writer)
        return writer

    def _make_shard_writer(self) -> EnvWriter | None:
        return self.make_row_writer() if self._find_no_row_writer_reason(loose=True) is None else None

    def _find_no_row_writer_reason(self, *, loose: bool = False) -> str | None:
        definer = next(cls for cls in type(self).__mro__ if "step_into" in vars(cls))
        if definer is ArrayEnv:
            return f"{type(self).__name__} defines no step_into."
        return (
            first_overridden(self, _TENSORDICT_METHODS, definer)
            or first_overridden(self, STEP_METHODS, ArrayEnv)
            or self.no_rows_reason()
            or no_layout_reason(self, loose=loose)
        )

    def no_rows_reason(self) -> str | None:
        """Return why this environment cannot use rows, apart from its specs; None if it can. Wrappers add reasons."""
        if self.state_keys:
            return "the environment takes a state."
        return "it is a batch itself." if self.batch_size else None

    def make_row_writer(self) -> EnvWriter:
        """Make the row writer of this environment, which calls ``step_into`` and ``reset_into``."""
        self._check_disjoint()
        return EnvWriter([self], RowLayout.of(self))

    @property
    def own_overrides(self) -> frozenset[str]:
        """The :attr:`overridden_methods` of this environment alone."""
        return self.cached("overridden", lambda: overridden(self, owner=ArrayEnv))

    def _forced_steps(self) -> RowSteps:
        """Return steps through rows, also if a subclass overrides ``_step`` and calls ``super()._step``."""
        steps = self.cached("forced_steps", lambda: RowSteps(self.make_row_writer()))
        assert isinstance(steps, RowSteps)
        return steps

    @classmethod
    def join_rows(cls, envs: list[Any]) -> RowWriter | None:
        """Return one row writer for the environments of a batch, which steps one after another."""
        writers = [env.shard_writer for env in envs]
        if None in writers or any(env.full_action_spec != envs[0].full_action_spec for env in envs[1:]):
            return None
        return EnvWriter(envs, writers[0].layout)

    # -- seeds ----------------------------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        # Without a new seed, a reset would continue the old generator, so set_seed(None) draws one.
        self._pending_seed = system_seed() if seed is None else seed

    def take_seed(self) -> int | None:
        """Return the seed for the next reset, once after each ``set_seed``; otherwise None."""
        seed = self._pending_seed
        if seed is not None:
            self._pending_seed = None
        return seed

    # -- on TensorDicts, for run_type_checks, masks and other devices ----------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        refuse_seed(kwargs)
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.reset does not take {sorted(kwargs)}: reset_into gets what "
                "reset(env_info={...}) is given, as env_info_spec describes it."
            )
        info = tensordict.get("env_info", None) if tensordict is not None else None
        fresh = self._forced_steps().reset(env_info=info_for_library(info))
        return fresh if is_host(self.device) else fresh.to(self.device)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if is_host(self.device):
            return self._forced_steps().step(tensordict)
        return self._forced_steps().step(tensordict.select(*self.action_keys).to(CPU)).to(self.device)


def refuse_seed(kwargs: dict[str, Any]) -> None:
    """Raise a TypeError if ``seed`` is among the keyword arguments of a reset."""
    if "seed" in kwargs:
        raise TypeError("reset takes no seed. To seed the next reset, call env.set_seed(seed).")
