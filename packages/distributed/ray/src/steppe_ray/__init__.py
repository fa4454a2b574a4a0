"""Collectors and replay buffers on a Ray cluster."""

from __future__ import annotations

from steppe.errors import LibraryMissing

try:
    import ray as _ray  # noqa: F401
except ImportError as error:
    raise LibraryMissing("steppe-ray needs Ray, which is not installed: pip install 'steppe[ray]'.") from error

from steppe_ray.ray_collector import RayCollector
from steppe_ray.ray_replay import RayReplayBuffer

__all__ = ["RayCollector", "RayReplayBuffer"]
