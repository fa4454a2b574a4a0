"""Pool: the arrays that an EnvPool pool takes and gives, by the keys of the environment."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["NO_PARTIAL_STEP", "Arrays", "Pool"]

Arrays = dict[Any, "np.ndarray[Any, Any]"]

NO_PARTIAL_STEP = "EnvPool's synchronous pools step all environments: there is no partial step."


class Pool:
    """A synchronous pool of the gymnasium kind.

    Args:
        library: the pool.
        dtypes: dtype of each observation by its key.
        single: whether observations come as one array, not as a dict.
        one_hot: whether actions are given as one-hot rows.
    """

    def __init__(self, library: Any, dtypes: dict[Any, np.dtype[Any]], *, single: bool, one_hot: bool) -> None:
        self.library = library
        self.single, self._one_hot = single, one_hot
        self._dtypes = [((key,) if isinstance(key, str) else key, key, dtype) for key, dtype in dtypes.items()]

    def native(self, action: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Turn actions ``[n, *shape]`` of the spec into those of the pool, which gives them the dtype that it needs."""
        if self._one_hot:
            # The second of two entries is the number of the action itself.
            return action[:, 1] if action.shape[-1] == 2 else action.argmax(-1)
        return action

    def step(self, action: np.ndarray[Any, Any]) -> tuple[Arrays, Any, Any, Any]:
        """Act; return observations by key, rewards, terminated and truncated, ``[n, ...]``, in memory of their own."""
        observation, reward, terminated, truncated, _ = self.library.step(action)
        return self._observations(observation), reward, terminated, truncated

    def send_reset(self, rows: Any) -> None:
        """Let the pool begin episodes in some rows; :meth:`receive_reset` waits for them."""
        # The first half of the pool's reset(), which has no name of its own, and recv() is the other.
        self.library._reset(np.asarray(rows, np.int32))

    def receive_reset(self) -> tuple[np.ndarray[Any, Any], Arrays]:
        """Return which rows were reset, in the order of the observations that come with them."""
        observation, info = self.library.recv(reset=True)
        return info["env_id"], self._observations(observation)

    def _observations(self, value: Any) -> Arrays:
        if self.single:
            _, key, dtype = self._dtypes[0]
            return {key: cast(value, dtype)}
        found: Arrays = {}
        for names, key, dtype in self._dtypes:
            part = value
            for name in names:
                part = part[name]
            found[key] = cast(part, dtype)
        return found


def cast(array: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The array in this dtype, itself where it has it."""
    out: np.ndarray[Any, Any] = array if array.dtype == dtype else array.astype(dtype)
    return out
