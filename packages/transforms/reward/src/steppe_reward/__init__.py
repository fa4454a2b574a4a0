"""Transforms of rewards for steppe."""

from __future__ import annotations

from .binarize import BinarizeReward
from .clipping import RewardClipping
from .linearise import LineariseRewards
from .reward_sum import RewardSum
from .reward_to_go import Reward2GoTransform
from .success import SuccessReward
from .target_return import TargetReturn

__all__ = [
    "BinarizeReward",
    "LineariseRewards",
    "Reward2GoTransform",
    "RewardClipping",
    "RewardSum",
    "SuccessReward",
    "TargetReturn",
]
