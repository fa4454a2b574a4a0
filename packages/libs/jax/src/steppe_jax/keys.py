"""Keys: the random keys that the episodes of an environment begin with."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

__all__ = ["Keys"]


class Keys:
    """A chain of keys. Each time some episodes begin it splits off one key, which is split into one for each row.

    So what row i begins with depends on the seed, on i and on how often episodes began, and not on which other rows
    begin with it: after ``seed(s)`` the first reset of n rows gives row i the key i of
    ``split(split(PRNGKey(s))[1], n)``.
    """

    def __init__(self) -> None:
        self.seed(None)

    def seed(self, seed: int | None) -> None:
        """Begin anew; None takes a seed from the operating system."""
        value = int(np.random.default_rng().integers(2**32)) if seed is None else int(seed) % 2**32
        self._key = jax.random.PRNGKey(value)

    def take(self, n: int) -> Any:
        """Keys of the next episodes of n rows, ``[n, ...]`` uint32."""
        self._key, keys = _next(self._key, n)
        return keys


def _split(key: Any, n: int) -> tuple[Any, Any]:
    following, mine = jax.random.split(key)
    return following, jax.random.split(mine, n)


_next = jax.jit(_split, static_argnums=1)
