"""RandomState: a separate random state for each VMAS environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["RandomState"]

T = TypeVar("T")


class RandomState:
    """The random state of one environment of VMAS.

    VMAS has one random state for all environments of a process (``Environment.vmas_random_state``), so the draws of one
    environment change those of another. This class keeps a state for each environment and swaps it in during each call.
    A seed then gives the same data, whichever other environments exist.
    """

    def __init__(self) -> None:
        self._shared = _shared()
        self._state = list(self._shared)
        # Environments that exist already and are wrapped next must start from another state than this one.
        generator = torch.Generator()
        generator.set_state(self._shared[0])
        following = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        self._shared[0] = torch.Generator().manual_seed(following).get_state()

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a method of the environment that draws from this state."""
        shared = self._shared
        others = list(shared)
        shared[:] = self._state
        try:
            if torch.is_inference_mode_enabled():
                # The environment writes into its tensors in later steps. Inference tensors would raise an error then.
                with torch.inference_mode(False), torch.no_grad():
                    return function(*args, **kwargs)
            return function(*args, **kwargs)
        finally:
            self._state[:] = shared
            shared[:] = others


def _shared() -> list[torch.Tensor]:
    from vmas.simulator.environment import Environment

    state: list[torch.Tensor] = Environment.vmas_random_state
    return state
