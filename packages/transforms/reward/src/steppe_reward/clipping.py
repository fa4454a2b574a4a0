"""RewardClipping: clip rewards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import Spec, mapped_bounds
from steppe.transforms import EntryTransform, clip_kernel

__all__ = ["RewardClipping"]


class RewardClipping(EntryTransform):
    """Clip rewards to the range between two bounds.

    Shape and dtype stay the same. The bounds of the spec are clipped too.

    >>> from steppe import RewardClipping, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:Pendulum-v1"), RewardClipping(-1.0, 0.0))
    >>> bool(env.rollout(5)["next", "reward"].min() >= -1)
    True

    Args:
        clamp_min: lower bound: a number, a tensor that broadcasts to the reward, or None.
        clamp_max: upper bound, of the same kinds.
        in_keys: rewards to clip. Default: all rewards of the environment, including those of groups of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.

    Raises:
        SpecError: no bound was passed, ``clamp_min`` exceeds ``clamp_max``, or an integer reward would be clipped to a
            fraction.
    """

    of_rewards = True

    def __init__(
        self,
        clamp_min: float | torch.Tensor | None = None,
        clamp_max: float | torch.Tensor | None = None,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.clamp_min = _bound(clamp_min, "clamp_min")
        self.clamp_max = _bound(clamp_max, "clamp_max")
        low, high = self.clamp_min, self.clamp_max
        if low is None and high is None:
            raise SpecError("RewardClipping: expected a bound, found none. Pass one or two: RewardClipping(-1, 1).")
        if low is not None and high is not None and not _all(low <= high):
            raise SpecError(f"RewardClipping: clamp_min must not exceed clamp_max, found {low} and {high}.")

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        low, high = self.clamp_min, self.clamp_max
        if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor):
            low, high = (
                None if bound is None else torch.as_tensor(bound, dtype=value.dtype, device=value.device)
                for bound in (low, high)
            )
        elif not value.is_floating_point():
            low, high = (None if bound is None else int(bound) for bound in (low, high))
        return torch.clamp(value, low, high)

    def row_kernel(self, source: Any, target: Any) -> Any:
        low, high = self.clamp_min, self.clamp_max
        if isinstance(low, torch.Tensor) or isinstance(high, torch.Tensor):
            return None
        return clip_kernel(source, target, low, high)

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        if leaf.dtype is not None and not leaf.dtype.is_floating_point:
            for bound in (self.clamp_min, self.clamp_max):
                if bound is not None and not _all(bound == bound // 1):
                    raise SpecError(
                        f"RewardClipping: the reward is of {leaf.dtype}, and cannot be clipped to {bound}. Give a "
                        f"whole number, or cast first: DTypeCastTransform({leaf.dtype}, torch.float32)."
                    )
        return mapped_bounds(leaf, self._apply_transform)

    def shared_key(self) -> Any:
        limits = (self.clamp_min, self.clamp_max)
        bounds = (bound.tolist() if isinstance(bound, torch.Tensor) else bound for bound in limits)
        return (type(self), str(list(bounds)), self.given_keys())

    def _repr_keys(self) -> Any:
        return ("clamp_min", "clamp_max", "in_keys", "out_keys")


def _bound(value: Any, name: str) -> Any:
    """Return a bound as a number, or as a tensor if it has several; None if it is infinite."""
    if value is None:
        return None
    try:
        tensor = value.detach() if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value))
    except (TypeError, ValueError):
        raise SpecError(f"RewardClipping: {name} must be a number, a tensor or None, found {value!r}.") from None
    if bool(tensor.isnan().any()):
        raise SpecError(f"RewardClipping: {name} must be a number, found NaN.")
    if tensor.numel() != 1:
        return tensor
    number = tensor.item()
    return None if math.isinf(number) else number


def _all(condition: Any) -> bool:
    return bool(condition.all()) if isinstance(condition, torch.Tensor) else bool(condition)
