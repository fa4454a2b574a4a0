"""The collectors of TorchRL by name: each is the engine with some arguments set."""

from __future__ import annotations

from steppe.collectors.engine import Collector

__all__ = ["SyncDataCollector"]


class SyncDataCollector(Collector):
    """Collects in the caller's process, between two iterations of its loop: a :class:`Collector` by its older name."""
