"""Pool: an EnvPool pool whose arrays are stored under the keys of the environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tensordict import NestedKey

__all__ = ["NO_PARTIAL_STEP", "Arrays", "Pool"]

#: Arrays ``[n, *shape]`` by key: a name, or a tuple of names.
Arrays = dict[Any, np.ndarray]

NO_PARTIAL_STEP = "EnvPool's synchronous pools step all environments at once: there is no partial step."


class Pool:
    """A synchronous pool of EnvPool with ``env_type="gymnasium"``.

    Args:
        library: the pool object of EnvPool.
        dtypes: dtype of each observation entry, by key.
        single: whether the observation is one array instead of a dict.
        one_hot: whether actions of the spec are one-hot vectors.
    """

    def __init__(self, library: Any, dtypes: dict[NestedKey, np.dtype], *, single: bool, one_hot: bool) -> None:
        self.library = library
        self.single, self._one_hot = single, one_hot
        self._dtypes = [((key,) if isinstance(key, str) else key, key, dtype) for key, dtype in dtypes.items()]

    def decode(self, action: np.ndarray) -> np.ndarray:
        """Convert actions ``[n, *shape]`` of the spec to actions of the pool.

        The pool casts them to its dtype.
        """
        if self._one_hot:
            # Of two columns, the second one is the index of the action. This is faster than argmax.
            return action[:, 1] if action.shape[-1] == 2 else action.argmax(-1)
        return action

    def step(self, action: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray]:
        """Step all environments.

        Returns:
            Observations by key, rewards, terminated and truncated, ``[n, ...]``. The pool does not reuse their memory.
        """
        observation, reward, terminated, truncated, _ = self.library.step(action)
        return self._observations(observation), reward, terminated, truncated

    def send_reset(self, rows: np.ndarray | Sequence[int]) -> None:
        """Start the reset of some rows without waiting.

        :meth:`receive_reset` returns the result.
        """
        # The pool's reset() is a send and a recv(). EnvPool has no public method for the send.
        self.library._reset(np.asarray(rows, np.int32))

    def receive_reset(self) -> tuple[np.ndarray, Arrays]:
        """Wait for the result of :meth:`send_reset`.

        Returns the indices of the reset rows, and their observations in the same order.
        """
        observation, info = self.library.recv(reset=True)
        return info["env_id"], self._observations(observation)

    def _observations(self, value: Any) -> Arrays:
        if self.single:
            _, key, dtype = self._dtypes[0]
            return {key: cast(value, dtype)}
        observations: Arrays = {}
        for names, key, dtype in self._dtypes:
            array = value
            for name in names:
                array = array[name]
            observations[key] = cast(array, dtype)
        return observations


def cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Cast an array to a dtype. An array of that dtype is returned unchanged."""
    out: np.ndarray = array if array.dtype == dtype else array.astype(dtype)
    return out
