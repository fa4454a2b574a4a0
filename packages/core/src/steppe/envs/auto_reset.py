"""Environments that reset themselves inside ``_step``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase

__all__ = ["AutoResetMemory", "blank"]


def blank(value: torch.Tensor) -> torch.Tensor:
    """A tensor like ``value`` that says "not known": NaN, -1 for whole numbers (0 for unsigned), False for bool."""
    if value.is_floating_point():
        return torch.full_like(value, float("nan"))
    if value.dtype is torch.bool or not value.dtype.is_signed:
        return torch.zeros_like(value)
    return torch.full_like(value, -1)


class AutoResetMemory:
    """Holds the first observations of the next episode between ``_step``, which found them, and the next root.

    Args:
        replace: put :func:`blank` values where the last observation of an episode would be.
    """

    def __init__(self, *, replace: bool = True) -> None:
        self.replace = replace
        self.pending: TensorDictBase | None = None

    def keep(self, following: TensorDictBase, env: EnvBase) -> TensorDictBase:
        """Take the observations of rows that ended out of ``following``, which is what ``_step`` returned."""
        done = _root_done(following, env)
        self.pending = None
        if not bool(done.any()):
            return following
        self.pending = following.select(*env.observation_keys).clone()
        if self.replace:
            for key in env.observation_keys:
                value = following.get(key)
                if isinstance(value, torch.Tensor):
                    rows = done.reshape(done.shape + (1,) * (value.ndim - done.ndim))
                    following.set(key, torch.where(rows, blank(value), value))
        return following

    def take(self, tensordict: Any, env: EnvBase) -> TensorDictBase:
        """Return the kept observations as what a reset of the ended rows gives."""
        assert self.pending is not None
        fresh, self.pending = self.pending, None
        return fresh.update(env.full_done_spec.zero())


def _root_done(following: TensorDictBase, env: EnvBase) -> torch.Tensor:
    """``[*B]``: rows in which some level has ended."""
    found = torch.zeros(following.batch_size, dtype=torch.bool, device=following.device)
    for key in env.done_keys:
        if (key if isinstance(key, str) else key[-1]) == "done":
            value = following.get(key)
            found = found | value.reshape((*following.batch_size, -1)).any(-1)
    return found
