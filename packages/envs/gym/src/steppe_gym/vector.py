"""Vector environments: true last observations, and the first of the next episode where a reset asks for them.

What a library does with a row whose episode ends differs by version:

==============================  ===================================================================================
DISABLED (gymnasium 1.1)        nothing: the row waits for ``reset(options={"reset_mask": ...})``
NEXT_STEP (gymnasium 1.0)       the row is reset by the next step, whose action is lost and whose reward is 0. Since 1.1
                                a reset by mask comes first, and nothing is lost. Elsewhere such a row is delivered with
                                ``("next", "valid")`` False: it is no transition. So it is with the processes of
                                ``AsyncVectorEnv(shared_memory=False)``, which keep the reset in mind after one by mask
SAME_STEP (gym 0.22 to 0.26,    the row is reset at once: the observation is the first of the next episode, and the last
gymnasium <1.0, 1.1 on demand)  one is in the infos. They are put in their places
none (gym <0.22)                as SAME_STEP, but the last observation is lost: NaN (0 for whole numbers) stands for it
==============================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import NotSupported
from steppe.specs import Composite

from .actions import batch_actions
from .compat import Adapter
from .own_batch import OwnBatch
from .values import SpaceReader, row_of

__all__ = ["Autoreset", "Batch", "is_vector", "single_spaces"]

_FINAL = ("final_obs", "final_observation", "terminal_observation")


class Autoreset(Enum):
    """What becomes of a row whose episode has ended."""

    BY_MASK = "reset when asked, by mask"
    NEXT_STEP = "reset by the next step"
    SAME_STEP = "reset within the step"


def is_vector(env: Any) -> bool:
    """Whether an environment is many: of this package, of gym, gymnasium, or a VecEnv of Stable-Baselines3."""
    return hasattr(env, "num_envs") and (hasattr(env, "single_action_space") or hasattr(env, "step_wait"))


def single_spaces(env: Any) -> tuple[Any, Any]:
    """The observation and action space of one row."""
    if hasattr(env, "single_action_space"):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


class Batch:
    """A vector environment as a wrapper needs it.

    Args:
        env: the vector environment.
        adapter: how its library is talked to.
        reader: takes observations of one row apart.
        decode: turns one native action into one of the action space; None where they are the same.
    """

    def __init__(
        self,
        env: Any,
        adapter: Adapter,
        reader: SpaceReader,
        decode: Callable[[Any], Any] | None,
        missing_obs_value: Any = None,
    ) -> None:
        self.env = env
        self.n = int(env.num_envs)
        self.adapter = adapter
        self.reader = reader
        self.decode = decode
        self.missing_obs_value = missing_obs_value
        self.action_space = single_spaces(env)[1]
        self.autoreset, self.by_mask = _mode(env, adapter)
        self.keeps_ends = self.autoreset is Autoreset.NEXT_STEP and _has_private_memory(env, adapter)
        #: Rows whose episode has ended, and that have not been reset since.
        self.ended = np.zeros(self.n, bool)
        #: First observations of rows that SAME_STEP has reset and no reset has asked for yet.
        self.fresh: dict[Any, torch.Tensor] = {}
        self.has_fresh = np.zeros(self.n, bool)
        self.last: dict[Any, torch.Tensor] = {}

    @property
    def has_invalid_rows(self) -> bool:
        """Whether some rows are no transitions."""
        return self.autoreset is Autoreset.NEXT_STEP and not self.by_mask

    # -- reset ----------------------------------------------------------------------------------------------------

    def reset(self, mask: np.ndarray | None, seed: int | None, options: Any) -> tuple[dict[Any, Any], Any]:
        """Reset all rows, or those of a mask.

        Returns:
            Observations ``[n, *shape]`` by key, of which the rows of the mask matter, and infos.

        Raises:
            NotSupported: the library cannot reset these rows alone.
        """
        if mask is not None and mask.all() and (seed is not None or not self.has_fresh.all()):
            mask = None
        if mask is None:
            outputs = self._whole_reset(seed, options)
            self.ended &= self.keeps_ends
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
            # The next step resets these rows; until then there is nothing newer than their last observation.
            return dict(self.last), {}
        raise NotSupported(
            f"{self.env} cannot reset rows {np.flatnonzero(mask).tolist()} alone: only rows that have just ended. "
            "Reset all of them, or make the batch with SerialEnv or ParallelEnv."
        )

    def _whole_reset(self, seed: int | None, options: Any) -> tuple[Any, Any]:
        adapter, env = self.adapter, self.env
        if isinstance(env, OwnBatch):
            return env.reset(seed=seed, options=options)
        if not hasattr(env, "single_action_space") and seed is not None:
            env.seed(seed)
            seed = None
        outputs = adapter.reset(env, seed, options)
        return adapter.sort_reset(outputs)

    def _masked_reset(self, mask: np.ndarray, options: Any) -> tuple[Any, Any]:
        if isinstance(self.env, OwnBatch):
            found: tuple[Any, Any] = self.env.reset(mask=mask, options=options)
        else:
            found = self.env.reset(options={**(options or {}), "reset_mask": mask.copy()})
        return found

    # -- step -----------------------------------------------------------------------------------------------------

    def step(self, actions: Any, mask: np.ndarray | None) -> tuple[Any, ...]:
        """Act in all rows, or in those of a mask.

        Args:
            actions: in the words of the library, from ``actions``.
            mask: rows that act; the others must have ended, as vector environments step as one.

        Returns:
            ``(observations by key, rewards, terminated, truncated, infos, valid)``, each ``[n, ...]``.

        Raises:
            NotSupported: the mask leaves out a row that has not ended.
        """
        if isinstance(self.env, OwnBatch):
            outputs = self.env.step(actions, mask=mask)
        else:
            if mask is not None:
                self._let_pass(~mask)
            outputs = self.env.step(actions)
        observation, reward, terminated, truncated, info = self.adapter.sort_step(outputs)
        data = self._remember(self._read(observation))
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        valid = ~self.ended if self.has_invalid_rows else np.ones(self.n, bool)
        self.ended = terminated | truncated
        if self.autoreset is Autoreset.SAME_STEP:
            self.has_fresh = self.ended.copy()
            if self.ended.any():
                data = self._put_last(data, self.ended, info)
        return data, np.asarray(reward), terminated, truncated, info, valid

    def _let_pass(self, excluded: np.ndarray) -> None:
        """Make sure that stepping the rows that should not act does no harm."""
        if (excluded & ~self.ended).any():
            raise NotSupported(
                f"{self.env} steps all of its rows: it cannot leave out "
                f"{np.flatnonzero(excluded & ~self.ended).tolist()}, which have not ended. "
                "SerialEnv and ParallelEnv step some rows only."
            )
        if self.autoreset is Autoreset.BY_MASK and excluded.any():
            self._masked_reset(excluded, None)

    def _put_last(self, data: dict[Any, Any], ended: np.ndarray, info: Any) -> dict[Any, Any]:
        """Keep the first observations that the library returned, and put the last ones in their place."""
        self.fresh = data
        found = {key: value.clone() for key, value in data.items()}
        for row in np.flatnonzero(ended):
            final = _final_observation(self.reader.space, info, int(row))
            values = None if final is None else self.reader.read(final)
            for key, value in found.items():
                value[row] = self._in_place(value.dtype) if values is None else values[key]
        return found

    def _in_place(self, dtype: torch.dtype) -> Any:
        """What stands where the library has lost an observation."""
        return _nothing(dtype) if self.missing_obs_value is None else self.missing_obs_value

    # -- conversions ----------------------------------------------------------------------------------------------

    def actions(self, native: Sequence[Any]) -> Any:
        """Native actions of all rows in the words of the library."""
        rows = list(native) if self.decode is None else [self.decode(action) for action in native]
        if isinstance(self.env, OwnBatch) or self.adapter.vector_actions_are_rows:
            return rows
        return batch_actions(self.action_space, rows)

    def rows_of_info(self, info: Any) -> list[Mapping[str, Any]]:
        """One info dict for each row: that of the step itself where the row was reset within it."""
        rows = [info_row(info, row) for row in range(self.n)]
        if self.autoreset is Autoreset.SAME_STEP:
            for row, found in enumerate(rows):
                final = found.get("final_info")
                if isinstance(final, Mapping):
                    rows[row] = final
        return rows

    def _read(self, observation: Any) -> dict[Any, Any]:
        if isinstance(self.env, OwnBatch):
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
    """What a vector environment does with rows that end, and whether it resets rows by a mask."""
    if isinstance(env, OwnBatch):
        return Autoreset.BY_MASK, True
    parse = type(adapter.version)
    if adapter.library == "gym" or adapter.version < parse("1.0a1") or not hasattr(env, "single_action_space"):
        return Autoreset.SAME_STEP, False
    stated = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    name = str(getattr(stated, "value", stated))
    vector = adapter.submodule("vector")
    own = isinstance(getattr(env, "unwrapped", env), vector.SyncVectorEnv | vector.AsyncVectorEnv)
    masks = own and adapter.version >= parse("1.1a1") and not (name == "NextStep" and _has_private_memory(env, adapter))
    if name == "Disabled":
        return Autoreset.BY_MASK, True
    if name == "SameStep":
        return Autoreset.SAME_STEP, masks
    return Autoreset.NEXT_STEP, masks


def _has_private_memory(env: Any, adapter: Adapter) -> bool:
    """Whether processes send observations: those of gymnasium then reset an ended row in a step even after a reset."""
    inner = getattr(env, "unwrapped", env)
    return isinstance(inner, adapter.submodule("vector").AsyncVectorEnv) and not inner.shared_memory


def _final_observation(space: Any, info: Any, row: int) -> Any:
    """The last observation of a row that was reset within the step, under the name that its version has for it."""
    found = info[row] if not isinstance(info, Mapping) else None
    for name in _FINAL:
        if found is not None:
            if name in found:
                return found[name]
        elif name in info:
            value = info[name]
            if isinstance(value, Mapping):
                return row_of(space, value, row)
            if value[row] is not None:
                return value[row]
    return None


def info_row(info: Any, row: int) -> Mapping[str, Any]:
    """The info dict of one row, whichever way the version keeps them."""
    if not isinstance(info, Mapping):
        found: Mapping[str, Any] = info[row]
        return found
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


def _nothing(dtype: torch.dtype) -> Any:
    return float("nan") if dtype.is_floating_point else 0


def step_mask(tensordict: TensorDictBase) -> np.ndarray | None:
    """The rows that act, where not all do."""
    mask = tensordict.get("_step", None)
    return None if mask is None else mask.reshape(-1).cpu().numpy()


def reset_mask(tensordict: TensorDictBase | None) -> np.ndarray | None:
    """The rows to reset, where not all are."""
    mask = None if tensordict is None else tensordict.get("_reset", None)
    return None if mask is None else mask.reshape(-1).cpu().numpy()


class RowsReader:
    """An info reader of one environment, for each row of a batch."""

    def __init__(self, reader: Any, n: int) -> None:
        self.reader = reader
        self.n = n

    @property
    def info_spec(self) -> Any:
        """What the reader adds, for all rows."""
        spec = Composite(dict(self.reader.info_spec.items()))
        return spec.expand((self.n, *spec.shape))

    def __call__(self, rows: Sequence[Mapping[str, Any]], tensordict: TensorDictBase) -> TensorDictBase:
        """Read each row and write the stack."""
        found = [self.reader(row, TensorDict({}, batch_size=())) for row in rows]
        stacked: Any = torch.stack(found)
        return tensordict.update(stacked)
