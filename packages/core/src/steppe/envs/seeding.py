"""The chain of seeds: one seed gives each environment of a batch a seed of its own."""

from __future__ import annotations

import numpy as np

from steppe.errors import SteppeError

__all__ = ["next_seed"]

_MODULUS = 2**32 - 1


def next_seed(seed: int) -> int:
    """Return the seed that follows ``seed`` in the chain.

    The first 8 bytes of numpy's ``default_rng(seed)`` (PCG64), read big-endian, modulo ``2**32 - 1``: TorchRL's chain,
    so that a number gives the same batch of seeds in both.

    Args:
        seed: a whole number >= 0.

    Raises:
        SteppeError: ``seed`` is negative or not a whole number.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise SteppeError(f"A seed is a whole number >= 0, found {seed!r}.")
    return int.from_bytes(np.random.default_rng(int(seed)).bytes(8), "big") % _MODULUS
