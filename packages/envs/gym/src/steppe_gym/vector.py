"""Batch: a vector environment of any version, with true last observations.

What a library does with a row whose episode has ended differs by version:

==============================  ===================================================================================
DISABLED (gymnasium 1.1)        the row waits for ``reset(options={"reset_mask": ...})`` NEXT_STEP (gymnasium 1.0)
the next step resets the row, ignores its action and returns the reward 0. Since 1.1,
                                this module resets the row by a mask before that step, and no step is lost. In other
                                versions, and in ``AsyncVectorEnv(shared_memory=False)``, whose processes reset in the
                                next step even after a reset by mask, the row of that step is not a transition: it has
                                ``("next", "valid")`` False
SAME_STEP (gym 0.22 to 0.26,    the step resets the row: it returns the first observation of the next episode, and the
gymnasium <1.0, 1.1 on demand)  last observation in the infos. This module puts each in its place
none (gym <0.22)                as SAME_STEP, but the last observation is lost and replaced by NaN (0 for integers)
==============================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import as_numbers
from steppe.errors import NotSupported, SpecError
from steppe.specs import Composite

from .actions import batch_actions
from .compat import Adapter
from .sequential_batch import SequentialBatch
from .values import SpaceReader, row_of

__all__ = ["Autoreset", "Batch", "is_vector", "single_spaces"]

_FINAL = ("final_obs", "final_observation", "terminal_observation")


class Autoreset(Enum):
    """How the library resets a row whose episode has ended."""

    BY_MASK = "reset on request, by mask"
    NEXT_STEP = "reset in the next step"
    SAME_STEP = "reset in the same step"


def is_vector(env: Any) -> bool:
    """Whether an environment is a batch.

    Batches are vector environments of this package, gym and gymnasium, and VecEnvs of Stable-Baselines3.
    """
    return hasattr(env, "num_envs") and (hasattr(env, "single_action_space") or hasattr(env, "step_wait"))


def single_spaces(env: Any) -> tuple[Any, Any]:
    """Return the observation and action space of one row."""
    if hasattr(env, "single_action_space"):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


class Batch:
    """A vector environment of any version, with one interface.

    :class:`GymWrapper` uses it.

    Args:
        env: the vector environment.
        adapter: the adapter of its library.
        reader: reads observations into the entries of a row.
        decode: converts a decoded action of one row to a value of the action space. ``None``: they are equal.
        missing_obs_value: the value of observations that the library has lost. ``None``: NaN, or 0 for integers.
    """

    def __init__(
        self,
        env: Any,
        adapter: Adapter,
        reader: SpaceReader,
        decode: Callable[[Any], Any] | None,
        missing_obs_value: float | None = None,
    ) -> None:
        self.env = env
        self.n = int(env.num_envs)
        self.adapter = adapter
        self.reader = reader
        self.decode = decode
        self.missing_obs_value = missing_obs_value
        self.action_space = single_spaces(env)[1]
        self.autoreset, self.by_mask = _mode(env, adapter)
        self.resets_twice = self.autoreset is Autoreset.NEXT_STEP and _has_private_memory(env, adapter)
        #: Rows whose episode has ended and which have not been reset since.
        self.ended = np.zeros(self.n, bool)
        #: First observations of rows that SAME_STEP has reset, until a reset returns them.
        self.fresh: dict[Any, torch.Tensor] = {}
        self.has_fresh = np.zeros(self.n, bool)
        self.last: dict[Any, torch.Tensor] = {}

    @property
    def has_invalid_rows(self) -> bool:
        """Whether some rows may not be transitions."""
        return self.autoreset is Autoreset.NEXT_STEP and not self.by_mask

    # -- reset ----------------------------------------------------------------------------------------------------

    def reset(
        self, mask: np.ndarray | None, seed: int | None, options: dict[str, object] | None
    ) -> tuple[dict[Any, Any], Any]:
        """Reset all rows, or the rows of a mask.

        Returns:
            Observations ``[n, *shape]`` by key, valid in the rows of the mask, and infos.

        Raises:
            NotSupported: the library cannot reset these rows alone.
        """
        if mask is not None and mask.all() and (seed is not None or not self.has_fresh.all()):
            mask = None
        if mask is None:
            outputs = self._whole_reset(seed, options)
            self.ended &= self.resets_twice
            self.has_fresh[:] = False
            return self._remember(self._read(outputs[0])), outputs[1]
        if self.autoreset is Autoreset.SAME_STEP and not (mask & ~self.has_fresh).any():
            self.has_fresh &= ~mask
            self.ended &= ~mask
            return self._merge(mask, self.fresh), {}
        if self.by_mask:
            outputs = self._masked_reset(mask, options)
            self.ended &= ~mask
            self.has_fresh &= ~mask
            return self._merge(mask, self._read(outputs[0])), outputs[1]
        if self.has_invalid_rows and not (mask & ~self.ended).any():
            # The next step resets these rows. Until then, their last observation is the newest.
            return dict(self.last), {}
        raise NotSupported(
            f"{self.env} cannot reset the environments {np.flatnonzero(mask).tolist()}: it resets all, or those whose "
            "episode has just ended. Reset all, or make the batch with SerialEnv or ParallelEnv."
        )

    def _whole_reset(self, seed: int | None, options: dict[str, object] | None) -> tuple[Any, Any]:
        adapter, env = self.adapter, self.env
        if isinstance(env, SequentialBatch):
            return env.reset(seed=seed, options=options)
        if not hasattr(env, "single_action_space") and seed is not None:
            env.seed(seed)
            seed = None
        outputs = adapter.reset(env, seed, options)
        return adapter.sort_reset(outputs)

    def _masked_reset(self, mask: np.ndarray, options: dict[str, object] | None) -> tuple[Any, Any]:
        if isinstance(self.env, SequentialBatch):
            outputs: tuple[Any, Any] = self.env.reset(mask=mask, options=options)
        else:
            outputs = self.env.reset(options={**(options or {}), "reset_mask": mask.copy()})
        return outputs

    # -- step -----------------------------------------------------------------------------------------------------

    def step(self, actions: Any, mask: np.ndarray | None) -> tuple[Any, ...]:
        """Step all rows, or the rows of a mask.

        Args:
            actions: actions in the format of the library, from :meth:`actions`.
            mask: rows to step. The library steps all rows, so the others must have ended.

        Returns:
            ``(observations by key, rewards, terminated, truncated, infos, valid)``, each ``[n, ...]``.

        Raises:
            NotSupported: the mask leaves out a row that has not ended.
        """
        if isinstance(self.env, SequentialBatch):
            outputs = self.env.step(actions, mask=mask)
        else:
            if mask is not None:
                self._check_skipped(~mask)
            outputs = self.env.step(actions)
        observation, reward, terminated, truncated, info = self.adapter.sort_step(outputs)
        data = self._remember(self._read(observation))
        try:
            reward = as_numbers("reward", reward, (self.n,))
            terminated, truncated = (
                as_numbers(name, flags, (self.n,)).astype(bool)
                for name, flags in (("terminated", terminated), ("truncated", truncated))
            )
        except SpecError as error:
            raise SpecError(f"{self.env}.step: {error}") from None
        valid = ~self.ended if self.has_invalid_rows else np.ones(self.n, bool)
        self.ended = terminated | truncated
        if self.autoreset is Autoreset.SAME_STEP:
            self.has_fresh = self.ended.copy()
            if self.ended.any():
                data = self._swap_last(data, self.ended, info)
        return data, reward, terminated, truncated, info, valid

    def _check_skipped(self, excluded: np.ndarray) -> None:
        """Check that all skipped rows have ended.

        If the library must reset them before a step, reset them.
        """
        if (excluded & ~self.ended).any():
            running = np.flatnonzero(excluded & ~self.ended).tolist()
            raise NotSupported(
                f"{self.env} steps all of its environments and cannot skip the environments {running}, whose "
                "episodes have not ended. To step only some environments, use SerialEnv or ParallelEnv."
            )
        if self.autoreset is Autoreset.BY_MASK and excluded.any():
            self._masked_reset(excluded, None)

    def _swap_last(self, data: dict[Any, Any], ended: np.ndarray, info: Any) -> dict[Any, Any]:
        """Store the first observations that the library returned.

        Returns the last observations, from the infos, instead.
        """
        self.fresh = data
        merged = {key: value.clone() for key, value in data.items()}
        for row in np.flatnonzero(ended):
            final = _final_observation(self.reader.space, info, int(row))
            values = None if final is None else self.reader.read(final)
            for key, value in merged.items():
                value[row] = self._missing_value(value.dtype) if values is None else values[key]
        return merged

    def _missing_value(self, dtype: torch.dtype) -> float:
        """Return the value of observations that the library has lost."""
        return _default_missing_value(dtype) if self.missing_obs_value is None else self.missing_obs_value

    # -- conversions ----------------------------------------------------------------------------------------------

    def actions(self, decoded: Sequence[Any]) -> Any:
        """Convert the decoded actions of all rows to the format of the library."""
        rows = list(decoded) if self.decode is None else [self.decode(action) for action in decoded]
        if isinstance(self.env, SequentialBatch) or self.adapter.vector_actions_are_rows:
            return rows
        return batch_actions(self.action_space, rows)

    def rows_of_info(self, info: Any) -> list[Mapping[str, Any]]:
        """Return the info of each row.

        If the step has reset a row, this is the info of the step.
        """
        rows = [info_row(info, row) for row in range(self.n)]
        if self.autoreset is Autoreset.SAME_STEP:
            for row, row_info in enumerate(rows):
                final = row_info.get("final_info")
                if isinstance(final, Mapping):
                    rows[row] = final
        return rows

    def _read(self, observation: Any) -> dict[Any, Any]:
        if isinstance(self.env, SequentialBatch):
            return self.reader.read_rows(observation)
        return self.reader.read_batch(observation, self.n)

    def _remember(self, data: dict[Any, Any]) -> dict[Any, Any]:
        self.last = data
        return dict(data)

    def _merge(self, mask: np.ndarray, fresh: Mapping[Any, torch.Tensor]) -> dict[Any, Any]:
        rows = torch.from_numpy(mask)
        merged = {}
        for key, old in self.last.items():
            merged[key] = old.clone()
            merged[key][rows] = fresh[key][rows]
        return self._remember(merged)


def _mode(env: Any, adapter: Adapter) -> tuple[Autoreset, bool]:
    """Return the autoreset mode, and whether rows can be reset by a mask."""
    if isinstance(env, SequentialBatch):
        return Autoreset.BY_MASK, True
    parse = type(adapter.version)
    if adapter.library == "gym" or adapter.version < parse("1.0a1") or not hasattr(env, "single_action_space"):
        return Autoreset.SAME_STEP, False
    mode = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = str(getattr(mode, "value", mode))
    vector = adapter.submodule("vector")
    is_builtin = isinstance(getattr(env, "unwrapped", env), vector.SyncVectorEnv | vector.AsyncVectorEnv)
    masks = (
        is_builtin
        and adapter.version >= parse("1.1a1")
        and not (name == "NextStep" and _has_private_memory(env, adapter))
    )
    if name == "Disabled":
        return Autoreset.BY_MASK, True
    if name == "SameStep":
        return Autoreset.SAME_STEP, masks
    return Autoreset.NEXT_STEP, masks


def _has_private_memory(env: Any, adapter: Adapter) -> bool:
    """Whether the processes of a vector environment send observations.

    Such processes reset an ended row in the next step, even after a reset.
    """
    inner = getattr(env, "unwrapped", env)
    return isinstance(inner, adapter.submodule("vector").AsyncVectorEnv) and not inner.shared_memory


def _final_observation(space: Any, info: Any, row: int) -> Any:
    """Return the last observation of a row that the step has reset, from the infos.

    Returns None if there is none.
    """
    row_info = info[row] if not isinstance(info, Mapping) else None
    for name in _FINAL:
        if row_info is not None:
            if name in row_info:
                return row_info[name]
        elif name in info:
            value = info[name]
            if isinstance(value, Mapping):
                return row_of(space, value, row)
            if value[row] is not None:
                return value[row]
    return None


def info_row(info: Any, row: int) -> Mapping[str, Any]:
    """Return the info of one row, from a list of infos or from a dict of arrays."""
    if not isinstance(info, Mapping):
        row_info: Mapping[str, Any] = info[row]
        return row_info
    out = {}
    for key, value in info.items():
        if key.startswith("_") and key[1:] in info:
            continue
        present = info.get(f"_{key}")
        if present is not None and not isinstance(present, Mapping) and not present[row]:
            continue
        if isinstance(value, Mapping):
            inner = info_row(value, row)
            if inner:
                out[key] = inner
        else:
            out[key] = value[row]
    return out


def _default_missing_value(dtype: torch.dtype) -> float:
    return float("nan") if dtype.is_floating_point else 0


def step_mask(tensordict: TensorDictBase) -> np.ndarray | None:
    """Return the mask of rows to step, ``[n]``; None for all rows."""
    mask = tensordict.get("_step", None)
    return None if mask is None else mask.reshape(-1).cpu().numpy()


def reset_mask(tensordict: TensorDictBase | None) -> np.ndarray | None:
    """Return the mask of rows to reset, ``[n]``; None for all rows."""
    mask = None if tensordict is None else tensordict.get("_reset", None)
    return None if mask is None else mask.reshape(-1).cpu().numpy()


class RowsReader:
    """Apply the info reader of a single environment to each row of a batch."""

    def __init__(self, reader: Any, n: int) -> None:
        self.reader = reader
        self.n = n

    @property
    def info_spec(self) -> Composite:
        """The specs of the entries that the reader adds, for all rows."""
        spec = Composite(dict(self.reader.info_spec.items()))
        return spec.expand((self.n, *spec.shape))

    def __call__(self, rows: Sequence[Mapping[str, Any]], tensordict: TensorDictBase) -> TensorDictBase:
        """Read the info of each row, and write the stacked values into ``tensordict``."""
        rows_read = [self.reader(row, TensorDict({}, batch_size=())) for row in rows]
        stacked: Any = torch.stack(rows_read)
        return tensordict.update(stacked)
