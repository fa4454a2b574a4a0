"""The chain of seeds, which gives each environment of a batch its own seed, and saved random states."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch

from steppe.errors import SteppeError

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["next_seed", "random_state_kept", "spread_seed", "system_seed"]

_MODULUS = 2**32 - 1


def system_seed() -> int:
    """Return a seed from the operating system, of 31 bits: every library takes these."""
    return int(np.random.default_rng().integers(2**31))


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


def spread_seed(
    seed: int | Sequence[int] | None,
    n: int,
    *,
    static: bool = False,
    seed_group: Callable[[int, int | None], int | None] | None = None,
) -> tuple[list[int | None], int | None]:
    """Give each of ``n`` environments, or groups of them, its seed.

    Args:
        seed: the first seed; None seeds from the operating system. A list has a number for each group.
        n: the number of environments or groups.
        static: all have the same seed.
        seed_group: seeds group ``k`` and returns the seed after its last environment; None for single environments.

    Returns:
        The seeds, and the seed after the last environment.
    """
    seeds: list[int | None] = []
    following = None if isinstance(seed, Sequence) else seed
    for k in range(n):
        # Numbers of a list that follow each other would give groups the same environments, shifted by one.
        first = next_seed(seed[k]) if isinstance(seed, Sequence) else following
        seeds.append(first)
        after = seed_group(k, first) if seed_group is not None else None if first is None else next_seed(first)
        following = first if static else after
    return seeds, following


@contextmanager
def random_state_kept(env: EnvBase) -> Iterator[None]:
    """Restore the random states of torch, numpy, Python and the environment's random actions at the end."""
    generator = env.base_state.generator
    mine = generator.get_state() if generator is not None else None
    python, numpy = random.getstate(), np.random.get_state()
    # Reading the state of a GPU initializes CUDA, so this is done only if random numbers may be drawn there.
    on_gpu = env.device is not None and env.device.type == "cuda"
    uses_cuda = on_gpu or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if uses_cuda else ()):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            env.base_state.generator = generator
            if generator is not None and mine is not None:
                generator.set_state(mine)
