"""Environments whose dynamics are a world model: ModelBasedEnvBase, DreamerEnv.

The names are importable from ``steppe`` and ``steppe.envs`` too.
"""

from __future__ import annotations

from steppe_models.dreamer import DreamerEnv
from steppe_models.model_based import ModelBasedEnvBase

__all__ = ["DreamerEnv", "ModelBasedEnvBase"]
