"""AutoResetMemory: for environments that reset themselves inside ``_step``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.envs.done import rows_ended
from steppe.envs.masks.step import merge_rows
from steppe.specs import Composite, contains_lazy_spec

if TYPE_CHECKING:
    from steppe.envs.reset_and_step import ResetAndStep

__all__ = ["AutoResetMemory", "blank", "blanked", "observed"]


def blank(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor like ``value`` of unknown values: NaN, -1 for whole numbers (0 for unsigned), False for bool."""
    if value.is_floating_point():
        return torch.full_like(value, float("nan"))
    if value.dtype is torch.bool or not value.dtype.is_signed:
        return torch.zeros_like(value)
    return torch.full_like(value, -1)


class AutoResetMemory:
    """Keeps the first observations of the next episode, which ``_step`` has returned, for the next root.

    Args:
        replace: put :func:`blank` values in the place of the last observation of an episode.
    """

    def __init__(self, *, replace: bool = True) -> None:
        self.replace = replace
        self.pending: TensorDictBase | None = None

    def keep(self, following: TensorDictBase, env: ResetAndStep) -> TensorDictBase:
        """Keep the observations of rows that ended in ``following``, the result of ``_step``, and blank them there."""
        done = rows_ended(following, env.done_groups)
        self.pending = None
        if not bool(done.any()):
            return following
        seen = observed(following, env.full_observation_spec, [*env.reward_keys, *env.done_keys])
        self.pending = seen.clone()
        return following.update(blanked(seen, done, blank)) if self.replace else following

    def take(self, env: ResetAndStep) -> TensorDictBase:
        """Return the kept observations as the result of a reset of the rows that ended."""
        assert self.pending is not None
        fresh, self.pending = self.pending, None
        return fresh.update(env.full_done_spec.zero())


def observed(following: TensorDictBase, spec: Composite, others: list[Any]) -> TensorDictBase:
    """Return the observations of ``following``, which also holds the keys ``others``."""
    if contains_lazy_spec(spec):  # rows differ, and not all of them have all keys
        return following.exclude(*others)
    return following.select(*spec.keys(include_nested=True, leaves_only=True))


def blanked(data: Any, rows: torch.Tensor, fill: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return new data, with ``fill(value)`` for each tensor of ``data`` in ``rows``, ``[*B]`` bool."""
    return merge_rows(rows, data.apply(fill), data)
