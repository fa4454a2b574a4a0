"""The data of the benchmark of replay buffers, for every contestant in every interpreter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from tensordict import TensorDict

__all__ = [
    "BATCH",
    "CLOCK",
    "LENGTH",
    "N_IMAGES",
    "N_VECTORS",
    "SLICES",
    "Entries",
    "chunks",
    "entries",
    "slice_of",
    "transitions",
]

#: Values by name, ``[n, ...]``.
Entries = dict[str, np.ndarray]

#: An environment variable, so that a peer's process measures with the same clock: "cpu" or "wall".
CLOCK = "STEPPE_BENCH_CLOCK"

BATCH, SLICES, LENGTH = 256, 32, 8
N_VECTORS, N_IMAGES, EPISODE = 1_000_000, 20_000, 200


def entries(n: int, shape: tuple[int, ...], dtype: type[np.generic]) -> Entries:
    """Return entries with made-up values."""
    generator = np.random.default_rng(0)
    obs = generator.integers(0, 255, (n + 1, *shape), dtype=np.uint8).astype(dtype)
    # Written, not only allocated: the system keeps one page for all zeros that nobody wrote.
    flags = {name: np.full((n, 1), False) for name in ("done", "terminated", "truncated")}
    flags["done"][EPISODE - 1 :: EPISODE] = True
    return {
        "obs": obs[:-1].copy(),
        "next_obs": obs[1:].copy(),
        "action": generator.random((n, 3), np.float32),
        "reward": generator.random((n, 1), np.float32),
        **flags,
    }


def transitions(data: Entries) -> TensorDict:
    """Return entries as the TensorDict that a collector yields."""
    tensors = {name: torch.from_numpy(value) for name, value in data.items()}
    n = len(data["obs"])
    following = {"observation": tensors["next_obs"]}
    following |= {name: tensors[name] for name in ("reward", "done", "terminated", "truncated")}
    return TensorDict(
        {"observation": tensors["obs"], "action": tensors["action"], "next": TensorDict(following, [n])}, [n]
    )


def chunks(data: Entries, size: int) -> Iterator[Entries]:
    """Yield parts of entries."""
    for start in range(0, len(data["obs"]), size):
        yield {name: value[start : start + size] for name, value in data.items()}


def slice_of(call: Callable[[], object], seconds: float = 0.15) -> Callable[[], float]:
    """Return a slice of a contest: microseconds for a call, of CPU time if the environment variable says so."""
    clock = time.process_time if os.environ.get(CLOCK) == "cpu" else time.perf_counter

    def slice_() -> float:
        n, start = 0, clock()
        while (now := clock()) - start < seconds:
            call()
            n += 1
        return (now - start) / n * 1e6

    return slice_
