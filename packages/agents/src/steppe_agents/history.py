"""History: the last steps of the running episodes, for agents that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase
from steppe.specs import CPU

__all__ = ["History", "history_of_record"]


class History:
    """The last steps of the running episode in each row of an environment.

    A step has the entries of the environment: observations, action, and the data under ``"next"``.

    Args:
        env: one environment, or a batch.
        steps: the number of steps, H.
    """

    def __init__(self, env: EnvBase, steps: int) -> None:
        self._n = env.numel() if env.batch_dims else 1
        self._steps = steps
        step = env.fake_tensordict().select(*env.observation_keys, *env.action_keys, "next").reshape(-1)
        self._step_keys = list(step.keys(True, True))
        self._data: Any = torch.zeros_like(step).unsqueeze(1).expand(self._n, steps).clone()
        self._count = torch.zeros(self._n, dtype=torch.int64, device=CPU)

    def begin(self, rows: Sequence[int] | torch.Tensor) -> None:
        """Forget the steps of rows that begin an episode."""
        self._count[torch.as_tensor(rows, device=CPU)] = 0

    def add(self, step: TensorDictBase, rows: Sequence[int] | torch.Tensor) -> None:
        """Add a step ``[k]`` of some rows."""
        at = torch.as_tensor(rows, device=CPU)
        step = step.select(*self._step_keys).unsqueeze(1)
        for key in self._step_keys:
            column = self._data.get(key)
            column[at] = torch.cat([column[at, 1:], step.get(key)], 1)
        self._count[at] += 1

    def of(self, rows: Sequence[int] | torch.Tensor) -> TensorDictBase:
        """Return the last steps of some rows ``[k, H]``, the last one at the end; ``"mask"`` marks existing steps."""
        at = torch.as_tensor(rows, device=CPU)
        mask = torch.arange(self._steps, device=CPU) >= self._steps - self._count[at].unsqueeze(-1)
        return _with_mask(self._data[at], mask)


def _with_mask(steps: TensorDictBase, mask: torch.Tensor) -> TensorDictBase:
    """Return steps ``[k, H]`` with zeros where a mask is False, and with the mask."""

    def masked(value: torch.Tensor) -> torch.Tensor:
        return torch.where(mask.reshape(*mask.shape, *(1 for _ in value.shape[2:])), value, torch.zeros_like(value))

    zeroed: Any = steps.apply(masked)
    zeroed.set("mask", mask)
    return zeroed  # type: ignore[no-any-return]


def history_of_record(
    steps: TensorDictBase, rows: torch.Tensor, at: torch.Tensor, starts: torch.Tensor, n: int
) -> TensorDictBase:
    """Return the last ``n`` recorded steps before some steps ``[k, n]``.

    Args:
        steps: recorded rows ``[R, T]``.
        rows: the row of each step ``[k]``.
        at: its index in the row.
        starts: the index of the first step of its episode.
        n: the number of steps.
    """
    before = at.unsqueeze(-1) - n + torch.arange(n, device=at.device)
    picked = steps.exclude("agent_state", "collector", ("next", "agent_state"))
    return _with_mask(picked[rows.unsqueeze(-1), before.clamp(min=0)], before >= starts.unsqueeze(-1))
