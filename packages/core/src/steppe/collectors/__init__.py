"""Collectors run a policy in environments and yield batches of transitions.

Collectors, agents and actors of other installed packages are found here by their names, as in
:mod:`steppe.transforms`: ``from steppe.collectors import Agent`` works once steppe-agents is installed. If the package
is missing, access raises :class:`~steppe.errors.ClassNotFound`, in ``hasattr`` too.

``Delivery``, ``WorkerGroup``, ``WorkerLink``, ``WorkersBackend``, ``AgentDeclarations``, the constants and the
functions in lower case are for packages that extend collectors, as steppe-agents does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe.collectors.acting import first_call
from steppe.collectors.agent_hook import AgentDeclarations
from steppe.collectors.base import BaseCollector, DataCollectorBase
from steppe.collectors.batch_memory import BatchMemory
from steppe.collectors.collector_backend import CollectorBackend
from steppe.collectors.delivery import STORED, Delivery
from steppe.collectors.engine import Collector
from steppe.collectors.local_backend import LocalBackend
from steppe.collectors.planning import Draw
from steppe.collectors.policy_content import PolicyContent, set_attributes
from steppe.collectors.presets import (
    AsyncCollector,
    MultiAsyncCollector,
    MultiaSyncDataCollector,
    MultiSyncCollector,
    MultiSyncDataCollector,
    SyncDataCollector,
    aSyncDataCollector,
)
from steppe.collectors.request_form import RequestEngine
from steppe.collectors.schedules import Continuous, Lockstep
from steppe.collectors.serving import WorkerLink
from steppe.collectors.sole_use import OWN_ENV
from steppe.collectors.trajectories import scatter, split_trajectories
from steppe.collectors.weights import Field, NewWeights, SourcePolicy, fields_of, values_for, write_into
from steppe.collectors.worker_group import WorkerGroup
from steppe.collectors.worker_messages import PER_WORKER, STOP
from steppe.collectors.workers_backend import WorkersBackend
from steppe.envs import rows_ended as row_ends
from steppe.imports import lazy_exports

__all__ = [
    "OWN_ENV",
    "PER_WORKER",
    "STOP",
    "STORED",
    "AgentDeclarations",
    "AsyncCollector",
    "BaseCollector",
    "BatchMemory",
    "Collector",
    "CollectorBackend",
    "Continuous",
    "DataCollectorBase",
    "Delivery",
    "Draw",
    "Field",
    "LocalBackend",
    "Lockstep",
    "MultiAsyncCollector",
    "MultiSyncCollector",
    "MultiSyncDataCollector",
    "MultiaSyncDataCollector",
    "NewWeights",
    "PolicyContent",
    "RequestEngine",
    "SourcePolicy",
    "SyncDataCollector",
    "WorkerGroup",
    "WorkerLink",
    "WorkersBackend",
    "aSyncDataCollector",
    "fields_of",
    "first_call",
    "row_ends",
    "scatter",
    "set_attributes",
    "split_trajectories",
    "values_for",
    "write_into",
]

__getattr__: Callable[[str], Any]
__getattr__, __dir__, _ = lazy_exports(__name__, kind="collector")
