"""Pretrained visual representations as transforms: R3M and VIP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .transforms import R3MTransform as R3MTransform
    from .transforms import VIPTransform as VIPTransform
    from .vip_reward import VIPRewardTransform as VIPRewardTransform
    from .weights import WeightsNotFound as WeightsNotFound
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "transforms": ["R3MTransform", "VIPTransform"],
            "vip_reward": ["VIPRewardTransform"],
            "weights": ["WeightsNotFound"],
        },
    )
