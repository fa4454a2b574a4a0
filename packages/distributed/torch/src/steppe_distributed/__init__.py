"""Collectors on several machines, over torch.distributed and torch's RPC."""

from __future__ import annotations

from steppe_distributed.delayed import submitit_delayed_launcher
from steppe_distributed.node_collectors import (
    DistributedDataCollector,
    DistributedSyncDataCollector,
    RPCDataCollector,
)

__all__ = [
    "DistributedDataCollector",
    "DistributedSyncDataCollector",
    "RPCDataCollector",
    "submitit_delayed_launcher",
]
