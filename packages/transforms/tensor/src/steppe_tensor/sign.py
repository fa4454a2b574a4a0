"""SignTransform: replace values by their signs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.specs import Spec, mapped_bounds
from steppe.transforms import EntryTransform

from .named import some_keys

__all__ = ["SignTransform"]


class SignTransform(EntryTransform):
    """Replace values by their signs: -1, 0 or 1.

    Shape and dtype stay the same, and the new bounds are the signs of the old ones. The inverse replaces the entries
    that the caller writes by their signs, and keeps their specs.

    >>> from steppe import SignTransform, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), SignTransform(in_keys=["reward"]))
    >>> env.rollout(2)["next", "reward"].flatten()
    tensor([1., 1.])

    Args:
        in_keys: observations, rewards and done entries.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Raises:
        SpecError: there are no keys.
    """

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        some_keys("SignTransform", in_keys, in_keys_inv)

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.sign()

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.sign()

    def row_kernel(self, source: Any, target: Any) -> Any:
        if source.dtype == bool:
            return None
        above, below = np.empty(source.shape, bool), np.empty(source.shape, bool)

        def sign() -> None:
            # Like torch.sign, 0 for NaN; np.sign returns NaN.
            np.greater(source, 0, out=above)
            np.less(source, 0, out=below)
            np.subtract(above, below, out=target, dtype=target.dtype)

        return sign

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        return mapped_bounds(leaf, torch.sign)

    def transform_leaf_inv(self, leaf: Spec, batch_dims: int) -> Spec:
        return leaf

    def shared_key(self) -> Any:
        return (type(self), self.given_keys())
