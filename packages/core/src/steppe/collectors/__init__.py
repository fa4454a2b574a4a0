"""Collectors: an environment and a policy make batches of data, iteration after iteration."""

from __future__ import annotations

from steppe.collectors.actors import CategoricalActor, NormalActor
from steppe.collectors.agents import Agent
from steppe.collectors.base import DataCollectorBase
from steppe.collectors.batchers import Batcher, EpisodeBatcher, MonoThreadEpisodeBatcher
from steppe.collectors.engine import Collector
from steppe.collectors.job import Job
from steppe.collectors.policy_bank import PolicyBank
from steppe.collectors.presets import (
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    SyncDataCollector,
    aSyncDataCollector,
)
from steppe.collectors.record import Trajectories
from steppe.collectors.trajectories import split_trajectories

__all__ = [
    "Agent",
    "Batcher",
    "CategoricalActor",
    "Collector",
    "DataCollectorBase",
    "EpisodeBatcher",
    "Job",
    "MonoThreadEpisodeBatcher",
    "MultiSyncDataCollector",
    "MultiaSyncDataCollector",
    "NormalActor",
    "PolicyBank",
    "SyncDataCollector",
    "Trajectories",
    "aSyncDataCollector",
    "split_trajectories",
]
