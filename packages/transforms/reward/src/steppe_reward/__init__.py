"""Transforms of rewards for steppe, advantages, and the evaluation of policies."""

from __future__ import annotations

from .advantages import gae
from .binarize import BinarizeReward
from .clipping import RewardClipping
from .evaluation import Evaluation, evaluate
from .linearise import LineariseRewards
from .reward_sum import RewardSum
from .reward_to_go import Reward2GoTransform
from .success import SuccessReward
from .target_return import TargetReturn

__all__ = [
    "BinarizeReward",
    "Evaluation",
    "LineariseRewards",
    "Reward2GoTransform",
    "RewardClipping",
    "RewardSum",
    "SuccessReward",
    "TargetReturn",
    "evaluate",
    "gae",
]
