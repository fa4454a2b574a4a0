"""SuccessReward: replace the reward by a sparse reward for success."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Bounded
from steppe.transforms import EntryTransform, EnvSpecs, Hooks, names_of, set_beside

__all__ = ["SuccessReward"]


class SuccessReward(EntryTransform):
    """Replace the reward by ``scale`` at a success, and by 0 otherwise.

    The environment reports success in ``success_key``. The new reward has the shape of the success entry and torch's
    default dtype. A reset has no reward.

    >>> import torch
    >>> from steppe import SuccessReward
    >>> from tensordict import TensorDict
    >>> success = torch.tensor([[False], [True]])
    >>> data = TensorDict(success=success, reward=torch.tensor([[0.3], [0.7]]), batch_size=[2])
    >>> SuccessReward(scale=10.0)(data)["reward"].flatten()
    tensor([ 0., 10.])

    Args:
        success_key: an observation or done entry, bool or 0 and 1.
        reward_key: the reward to replace.
        scale: reward of a success.

    Raises:
        SpecError: the environment has no such success entry.
    """

    writes_done = False

    def __init__(
        self, success_key: NestedKey = "success", reward_key: NestedKey = "reward", *, scale: float = 1.0
    ) -> None:
        super().__init__([success_key], [reward_key])
        try:
            self.scale = float(scale)
        except (TypeError, ValueError):
            raise SpecError(f"SuccessReward: scale must be a number, found {scale!r}.") from None
        self.dtype = torch.get_default_dtype()

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype) * self.scale

    def pairs_in(self, data: TensorDictBase) -> list[tuple[Any, Any]]:
        """Return the keys in stored data: those below ``"next"`` if there are any, because a root has no reward."""
        (key, out_key), below = self.key_pairs[0], ("next", *names_of(self.in_keys[0]))
        return [(key, out_key)] if data.get(below, None) is None else [(below, ("next", *names_of(out_key)))]

    def row_kernel(self, source: Any, target: Any) -> Any:
        scale = target.dtype.type(self.scale)

        def reward() -> None:
            np.copyto(target, source, casting="unsafe")
            np.multiply(target, scale, out=target)

        return reward

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        key, out_key = self.in_keys[0], self.out_keys[0]
        leaves = ((spec, spec.get(key, None)) for spec in (specs.observation, specs.done, specs.reward))
        like, success = next((pair for pair in leaves if pair[1] is not None), (specs.reward, None))
        if success is None:
            success = specs.reward.get(out_key, None)  # the caller passed only the reward spec
        if success is not None:
            low, high = min(0.0, self.scale), max(0.0, self.scale)
            leaf = Bounded(low, high, shape=success.shape, device=success.device, dtype=self.dtype)
            set_beside(specs.reward, out_key, leaf, like)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks(specs)
        hooks.reset = None
        return hooks

    def shared_key(self) -> Any:
        return (type(self), self.scale, self.dtype, self.given_keys())

    def _repr_keys(self) -> Any:
        return ("in_keys", "out_keys", "scale")
