"""Transforms that normalize observations and rewards, for steppe."""

from __future__ import annotations

from steppe_norm.observation_norm import ObservationNorm
from steppe_norm.reward_scaling import RewardScaling
from steppe_norm.vec_norm import VecNorm
from steppe_norm.vec_norm_v2 import VecNormV2

__all__ = ["ObservationNorm", "RewardScaling", "VecNorm", "VecNormV2"]
