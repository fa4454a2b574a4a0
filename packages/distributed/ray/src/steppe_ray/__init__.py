"""Collectors and replay buffers on a Ray cluster."""

from __future__ import annotations

from steppe_ray.ray_collector import RayCollector
from steppe_ray.ray_replay import RayReplayBuffer

__all__ = ["RayCollector", "RayReplayBuffer"]
