"""A policy that is called with all lanes, also those that have no work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import PolicyError
from steppe.specs import CPU

__all__ = ["AllLanes"]


class AllLanes:
    """Calls a policy with ``[n]`` rows and returns those that are at work.

    Lanes without work have the data that they had last; ``("collector", "mask")`` ``[n]`` bool says which have some.

    Args:
        act: the policy.
        n: lanes.
    """

    def __init__(self, act: Callable[[TensorDictBase], Any], n: int) -> None:
        self.act, self.n = act, n
        self._last: TensorDictBase | None = None

    def forget(self) -> None:
        """Forget what lanes had last."""
        self._last = None

    def __call__(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Return the rows ``[k]`` of some lanes with what the policy writes."""
        at = torch.tensor(lanes, device=CPU)
        wide = td[torch.zeros(self.n, dtype=torch.int64, device=CPU)] if self._last is None else self._last
        if len(lanes) < self.n:
            wide[at] = td
        else:
            wide = td
        self._last = wide.clone()
        given = wide.copy()
        mask = torch.zeros(self.n, dtype=torch.bool, device=CPU)
        mask[at] = True
        given.set(("collector", "mask"), mask)
        acted = self.act(given)
        if acted is not given:
            if not isinstance(acted, TensorDictBase):
                raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
            given.update(acted)
        return given.exclude("collector")[at]
