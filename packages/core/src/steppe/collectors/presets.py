"""The collectors of TorchRL by name: each is the engine with some arguments set."""

from __future__ import annotations

from steppe.collectors.engine import Collector
from steppe.collectors.multi import MultiaSyncDataCollector, MultiSyncDataCollector, aSyncDataCollector

__all__ = ["MultiSyncDataCollector", "MultiaSyncDataCollector", "SyncDataCollector", "aSyncDataCollector"]


class SyncDataCollector(Collector):
    """Collects in the caller's process, between two iterations of its loop: a :class:`Collector` by its older name."""
