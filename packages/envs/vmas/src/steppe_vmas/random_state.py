"""RandomState: random numbers of one VMAS environment, apart from those of others in the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["RandomState"]

T = TypeVar("T")


class RandomState:
    """What an environment of VMAS draws its random numbers from.

    VMAS has one state for all environments of a process (``Environment.vmas_random_state``): what one of them draws
    changes what another one will. Here each has its own, put in the place of that one while it is at work, so that a
    seed gives the same data whoever else is there.
    """

    def __init__(self) -> None:
        self._shared = _shared()
        self._own = list(self._shared)
        # Environments that were made already, and are wrapped next, must not go on with the same numbers.
        generator = torch.Generator()
        generator.set_state(self._shared[0])
        following = int(torch.randint(2**62, (), generator=generator, device="cpu"))
        self._shared[0] = torch.Generator().manual_seed(following).get_state()

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a method of the environment, which draws from this state."""
        shared = self._shared
        others = list(shared)
        shared[:] = self._own
        try:
            if torch.is_inference_mode_enabled():
                # The environment keeps tensors that it makes, and writes into them in a later step, in any mode.
                with torch.inference_mode(False), torch.no_grad():
                    return function(*args, **kwargs)
            return function(*args, **kwargs)
        finally:
            self._own[:] = shared
            shared[:] = others


def _shared() -> list[Any]:
    from vmas.simulator.environment import Environment

    state: list[Any] = Environment.vmas_random_state
    return state
