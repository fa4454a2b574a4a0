"""RandomState: a separate state of the global generators for each environment."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

__all__ = ["RandomState", "fresh_seed"]

T = TypeVar("T")


class RandomState:
    """The random state of one batch of Isaac.

    Isaac draws from the global generators of Python, numpy and torch. This class keeps a state of them for each batch,
    and swaps it in during each call. A seed then gives the same data, whatever else draws from these generators.

    Args:
        device: the device of the simulation.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device if device.type == "cuda" else None
        self._state = self._read()
        # Workers are copies of one process, whose generators have one state.
        self.seed(fresh_seed())

    def _read(self) -> tuple[Any, ...]:
        cuda = None if self._cuda is None else torch.cuda.get_rng_state(self._cuda)
        return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda

    def _write(self, state: tuple[Any, ...]) -> None:
        python, numpy, cpu, cuda = state
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(cuda, self._cuda)

    def seed(self, seed: int) -> None:
        """Seed the generators as both libraries do."""
        self.call(_seed_all, seed % 2**32)

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function of the library that draws from this state."""
        others = self._read()
        self._write(self._state)
        try:
            if torch.is_inference_mode_enabled():
                # The library writes into its tensors in later steps. Inference tensors would raise an error then.
                with torch.inference_mode(False), torch.no_grad():
                    return function(*args, **kwargs)
            return function(*args, **kwargs)
        finally:
            self._state = self._read()
            self._write(others)


def fresh_seed() -> int:
    """Return a seed that no generator of this process determines."""
    return int(np.random.default_rng().integers(2**31))


def _seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
