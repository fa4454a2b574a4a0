"""Pretrained visual representations as transforms: R3M and VIP."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .transforms import R3MTransform, VIPTransform
    from .vip_reward import VIPRewardTransform
    from .weights import WeightsNotFound

__all__ = ["R3MTransform", "VIPRewardTransform", "VIPTransform", "WeightsNotFound"]

_MODULES = {"WeightsNotFound": "weights", "VIPRewardTransform": "vip_reward"}


def __getattr__(name: str) -> object:
    # steppe imports this package to list its transforms, so it must load without torch.
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'steppe_pretrained' has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'transforms')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
