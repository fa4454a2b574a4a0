"""Batches of steppe as vectorized environments of Stable-Baselines3."""

from __future__ import annotations

from .vec_env import BatchVecEnv, as_vec_env, make_vec_env

__all__ = ["BatchVecEnv", "as_vec_env", "make_vec_env"]
