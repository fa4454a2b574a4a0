"""RandomKeys: the JAX random keys that episodes are reset with."""

from __future__ import annotations

import jax
import numpy as np

__all__ = ["RandomKeys"]


class RandomKeys:
    """A chain of random keys.

    Each reset splits off one key, and splits that into one key for each row. The key of row i therefore depends on the
    seed, on i and on the number of resets so far, but not on which other rows are reset in the same call. After
    ``seed(s)``, the first reset of n rows gives row i the key i of ``split(split(PRNGKey(s))[1], n)``.
    """

    def __init__(self) -> None:
        self.seed(None)

    def seed(self, seed: int | None) -> None:
        """Restart the chain. ``None`` takes a seed from the operating system."""
        value = int(np.random.default_rng().integers(2**32)) if seed is None else int(seed) % 2**32
        self._key = jax.random.PRNGKey(value)

    def take(self, n: int) -> jax.Array:
        """Return the keys of the next reset of n rows, and advance the chain.

        The keys are ``[n, ...]`` uint32.
        """
        keys: jax.Array
        self._key, keys = _next(self._key, n)
        return keys


def _split(key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
    following, reset_key = jax.random.split(key)
    return following, jax.random.split(reset_key, n)


_next = jax.jit(_split, static_argnums=1)
