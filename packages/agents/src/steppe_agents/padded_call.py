"""PaddedCall: call a policy with the rows of all lanes, including idle ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase

from steppe.envs import with_written
from steppe.specs import CPU

__all__ = ["PaddedCall"]


class PaddedCall:
    """Call a policy with ``[n]`` rows, for policies whose rows depend on each other.

    Idle lanes have the data of their last step. ``("collector", "mask")`` ``[n]`` bool is False for them.

    Args:
        act: the policy.
        n: number of lanes.
    """

    def __init__(self, act: Callable[[TensorDictBase], TensorDictBase], n: int) -> None:
        self._act, self._n = act, n
        self._last: TensorDictBase | None = None

    def clear_cache(self) -> None:
        """Drop the data of idle lanes."""
        self._last = None

    def __call__(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Return the rows ``[k]`` of some lanes with the output of the policy."""
        at = torch.tensor(lanes, device=CPU)
        rows = td[torch.zeros(self._n, dtype=torch.int64, device=CPU)] if self._last is None else self._last
        if len(lanes) < self._n:
            rows[at] = td
        else:
            rows = td
        self._last = rows.clone()
        padded = rows.copy()
        mask = torch.zeros(self._n, dtype=torch.bool, device=CPU)
        mask[at] = True
        padded.set(("collector", "mask"), mask)
        return with_written(padded, self._act(padded)).exclude("collector")[at]
