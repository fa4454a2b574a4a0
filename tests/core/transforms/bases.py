"""Environments that transforms are tried on, each of a number of steps: single ones and batches, on both code paths."""

from __future__ import annotations

from steppe.batched import SerialEnv
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = {
    "tensordict": CountingEnv,
    "arrays": ArrayCountingEnv,
    "batch": lambda steps: CountingEnv(steps, batch_size=(2,)),
    "serial": lambda steps: SerialEnv(2, lambda: ArrayCountingEnv(steps)),
}
