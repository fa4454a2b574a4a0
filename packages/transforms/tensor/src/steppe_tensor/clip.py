"""ClipTransform: clip values."""

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

from .named import some_keys

__all__ = ["ClipTransform"]


class ClipTransform(EntryTransform):
    """Clip values to the range between two bounds.

    Shape and dtype stay the same. The bounds of the spec are clipped too. The inverse clips the entries that the caller
    writes, and keeps their specs.

    >>> from steppe import ClipTransform, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), ClipTransform(["observation"], low=-0.01, high=0.01))
    >>> bool(env.reset()["observation"].abs().max() <= 0.01)
    True

    Args:
        in_keys: observations, rewards and done entries to clip.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.
        low: lower bound, a number or None.
        high: upper bound, a number or None.

    Raises:
        SpecError: no bound or no key was passed, a bound is not a number, ``low`` is not below ``high``, or an integer
            entry would be clipped to a fraction.
    """

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        *,
        low: float | torch.Tensor | None = None,
        high: float | torch.Tensor | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        some_keys("ClipTransform", in_keys, in_keys_inv)
        self.low, self.high = _bound("low", low), _bound("high", high)
        if self.low is None and self.high is None:
            raise SpecError("ClipTransform: expected a bound, found none. Pass low=..., high=... or both.")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise SpecError(f"ClipTransform: low must be below high, found {self.low} and {self.high}.")

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        low, high = self.low, self.high
        if not value.is_floating_point():
            low, high = (None if bound is None else int(bound) for bound in (low, high))
        return torch.clamp(value, low, high)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return self._apply_transform(value)

    def _check_whole(self, leaf: Spec) -> None:
        if leaf.dtype is None or leaf.dtype.is_floating_point:
            return
        for bound in (self.low, self.high):
            if bound is not None and bound != int(bound):
                raise SpecError(
                    f"ClipTransform: an entry of {leaf.dtype} cannot be clipped to {bound}. Pass a whole "
                    f"number, or cast first: DTypeCastTransform({leaf.dtype}, torch.float32)."
                )

    def row_kernel(self, source: Any, target: Any) -> Any:
        return clip_kernel(source, target, self.low, self.high)

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        self._check_whole(leaf)
        return mapped_bounds(leaf, self._apply_transform)

    def transform_leaf_inv(self, leaf: Spec, batch_dims: int) -> Spec:
        self._check_whole(leaf)
        return leaf

    def shared_key(self) -> Any:
        return (type(self), self.low, self.high, self.given_keys())

    def _repr_keys(self) -> Any:
        return (*super()._repr_keys(), "low", "high")


def _bound(name: str, value: Any) -> Any:
    """Return a bound as a Python number; None if it is infinite."""
    if value is None:
        return None
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, torch.Tensor) else value)
        number = array.item() if array.size == 1 else None
    except (TypeError, ValueError):
        number = None
    if not isinstance(number, (int, float)) or math.isnan(number):
        raise SpecError(f"ClipTransform: {name} must be a number or None, found {value!r}.")
    return None if math.isinf(number) else number
