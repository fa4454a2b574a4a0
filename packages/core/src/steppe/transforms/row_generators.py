"""RowGenerators: random numbers of a transform, for each row of its environment."""

from __future__ import annotations

from typing import Any

import torch

from steppe.envs import next_seed

__all__ = ["RowGenerators"]


class RowGenerators:
    """A generator for each row of an environment.

    They are seeded as a batch seeds its environments: a transform around a batch draws for row i what a clone of it
    inside environment i draws. As long as no seed was given, torch's global generator is drawn from.

    A transform that draws keeps one, and hands on the seed that its ``_set_seed`` is given.
    """

    def __init__(self) -> None:
        self._seed: int | None = None
        self._generators: list[torch.Generator] = []

    def seed(self, seed: int | None) -> None:
        """Begin anew from a seed, that of the first row; None goes back to torch's global generator."""
        self._seed = None if seed is None else int(seed)
        self._generators = []

    def of(self, rows: int) -> list[torch.Generator | None]:
        """The generators of so many rows, or as many None."""
        if self._seed is None:
            return [None] * rows
        while len(self._generators) < rows:
            self._generators.append(torch.Generator().manual_seed(self._seed))
            self._seed = next_seed(self._seed)
        return list(self._generators[:rows])

    def __getstate__(self) -> dict[str, Any]:
        return {"seed": self._seed, "states": [generator.get_state() for generator in self._generators]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._seed, self._generators = state["seed"], []
        for saved in state["states"]:
            generator = torch.Generator()
            generator.set_state(saved)
            self._generators.append(generator)
