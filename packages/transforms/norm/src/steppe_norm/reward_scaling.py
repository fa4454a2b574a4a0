"""RewardScaling: scale rewards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import Composite
from steppe.transforms import EnvSpecs, Hooks, Transform
from steppe_norm.affine import affine_leaf, forward, number_of
from steppe_norm.affine_rows import affine_rows

__all__ = ["RewardScaling"]


class RewardScaling(Transform):
    """Scale rewards: ``reward * scale + loc``.

    >>> from steppe import RewardScaling, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), RewardScaling(loc=0.0, scale=0.1))
    >>> env.rollout(2)["next", "reward"].flatten()
    tensor([0.1000, 0.1000])

    Args:
        loc: a number, or a tensor that broadcasts to the rewards.
        scale: a number or tensor; values below 1e-6 become 1e-6.
        in_keys: rewards to scale. Default: all rewards of the environment, including those of groups of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        standard_normal: scale as ``(reward - loc) / scale`` instead.

    Attributes:
        loc, scale, standard_normal: buffers.

    Raises:
        SpecError: a scale is negative, or one of ``in_keys`` is not a reward of the environment.
    """

    writes_done = False
    keeps_nothing = True

    def __init__(
        self,
        loc: float | torch.Tensor,
        scale: float | torch.Tensor,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        standard_normal: bool | torch.Tensor = False,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.register_buffer("standard_normal", torch.as_tensor(standard_normal, device=torch.device("cpu")))
        self.register_buffer("loc", number_of("RewardScaling", "loc", loc))
        scale = number_of("RewardScaling", "scale", scale)
        if bool((scale < 0).any()):
            raise SpecError(f"RewardScaling: scale must not be negative, found {scale}.")
        self.register_buffer("scale", scale.clamp_min(1e-6))

    def default_keys(self, specs: EnvSpecs | None) -> list[Any]:
        return ["reward"] if specs is None else list(specs.reward.keys(include_nested=True, leaves_only=True))

    @property
    def needs_all_rows(self) -> bool:
        """Whether ``loc`` and ``scale`` may differ between the rows of a batch.

        True if they have several dimensions, of which the first may be the rows.
        """
        return bool(max(self.loc.ndim, self.scale.ndim) > 1)

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return forward(value, *self._numbers())

    def _numbers(self) -> Any:
        buffers = self._buffers
        return buffers["loc"], buffers["scale"], buffers["standard_normal"]

    def hooks(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks(specs)
        hooks.rows = affine_rows(specs, self.key_pairs, self._numbers)
        return hooks

    def transform_reward_spec(self, reward_spec: Composite) -> Composite:
        for key, out_key in self.key_pairs:
            leaf = reward_spec.get(key, None)
            if leaf is None:
                rewards = list(reward_spec.keys(include_nested=True, leaves_only=True))
                raise SpecError(f"RewardScaling: the environment has no reward {key!r}. It has {rewards}.")
            reward_spec.set(out_key, affine_leaf(leaf, self._apply_transform))
        return reward_spec
