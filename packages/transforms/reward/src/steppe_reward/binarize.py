"""BinarizeReward: replace rewards by 0 or 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.specs import Binary, Spec
from steppe.transforms import EntryTransform

__all__ = ["BinarizeReward"]


class BinarizeReward(EntryTransform):
    """Replace positive rewards by 1, and all others by 0.

    The result is int8, of the shape of the reward; its spec is ``Binary``.

    >>> from steppe import BinarizeReward, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), BinarizeReward())
    >>> env.rollout(3)["next", "reward"].flatten()
    tensor([1, 1, 1], dtype=torch.int8)

    Args:
        in_keys: rewards to read. Default: all rewards of the environment, including those of groups of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
    """

    of_rewards = True

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys)

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return (value > 0).to(torch.int8)

    def row_kernel(self, source: Any, target: Any) -> Any:
        return partial(np.greater, source, 0, out=target.view(bool))

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        return Binary(shape=leaf.shape, device=leaf.device, dtype=torch.int8)

    def shared_key(self) -> Any:
        return (type(self), self.given_keys())
