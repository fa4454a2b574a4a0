"""Many environments as one: in this process, or in worker processes.

``AsyncEnvPool`` and its subclasses are found here too, once steppe-pools is installed.

All names but the batches, ``EnvCreator``, ``as_factory`` and ``env_creator`` are for packages with batches or backends
of their own, as steppe-pools.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe.batched.attributes import Dispatched
from steppe.batched.backends.base import Backend
from steppe.batched.backends.processes import Processes
from steppe.batched.base import BatchedEnv
from steppe.batched.batch_layout import BatchLayout, EnvReport
from steppe.batched.factories import EnvCreator, as_factory, env_creator
from steppe.batched.flags import Flags
from steppe.batched.operations import RESET, STEP, STEP_AND_RESET
from steppe.batched.parallel import ParallelEnv
from steppe.batched.serial import SerialEnv
from steppe.batched.shard import ShardService
from steppe.batched.storage_rows import BatchRows
from steppe.batched.unbuffered import row_to_send, stack_rows
from steppe.imports import lazy_exports

__all__ = [
    "RESET",
    "STEP",
    "STEP_AND_RESET",
    "Backend",
    "BatchLayout",
    "BatchRows",
    "BatchedEnv",
    "Dispatched",
    "EnvCreator",
    "EnvReport",
    "Flags",
    "ParallelEnv",
    "Processes",
    "SerialEnv",
    "ShardService",
    "as_factory",
    "env_creator",
    "row_to_send",
    "stack_rows",
]

__getattr__: Callable[[str], Any] = lazy_exports(__name__, kind="env class")[0]
