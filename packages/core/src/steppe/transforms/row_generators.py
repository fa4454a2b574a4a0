"""RowGenerators: a random generator for each row of an environment."""

from __future__ import annotations

import torch

from steppe.envs import spread_seed

__all__ = ["RowGenerators"]


class RowGenerators:
    """Keep a random generator for each row of an environment.

    Rows are seeded as a batch seeds its environments: a transform around a batch draws the same numbers for row i as a
    clone of it inside environment i. Without a seed, torch's global generator is used.

    A transform that draws random numbers keeps one instance, and calls ``seed`` in its ``_set_seed``.
    """

    def __init__(self) -> None:
        self._seed: int | None = None
        self._generators: list[torch.Generator] = []

    def seed(self, seed: int | None) -> None:
        """Set the seed of the first row; None switches back to torch's global generator."""
        self._seed = None if seed is None else int(seed)
        self._generators = []

    def of(self, rows: int) -> list[torch.Generator | None]:
        """Return the generators of the first ``rows`` rows; None for each row without a seed."""
        if self._seed is None:
            return [None] * rows
        seeds, self._seed = spread_seed(self._seed, rows - len(self._generators))
        self._generators += [torch.Generator().manual_seed(seed) for seed in seeds if seed is not None]
        return list(self._generators[:rows])
