"""Worker processes: start, settings, calls, shared memory and failures.

A pool names the function that its workers run, ``Pool(n, "module:function")``. The function is called with a
:class:`Worker`, and gives it a :class:`Service` that answers the caller. Nothing here knows environments or
collectors.
"""

from __future__ import annotations

from steppe.workers.channel import SpinGate
from steppe.workers.context import apply_context, gather_context
from steppe.workers.control_block import ControlBlock
from steppe.workers.failures import Failure, ItemError
from steppe.workers.in_use import InUse, exclusive
from steppe.workers.interrupts import uninterrupted
from steppe.workers.pickling import pickled
from steppe.workers.pool import (
    AFTER_AN_ERROR,
    SHUTDOWN_TIMEOUT,
    SHUTDOWN_TIMEOUT_AFTER_FAILURE,
    Pool,
    interrupted,
    other_process,
)
from steppe.workers.sharing import SharedFile, SharedLock
from steppe.workers.start.fork_server import fork_server
from steppe.workers.start.process import METHODS, check_method
from steppe.workers.worker import Service, Worker

__all__ = [
    "AFTER_AN_ERROR",
    "METHODS",
    "SHUTDOWN_TIMEOUT",
    "SHUTDOWN_TIMEOUT_AFTER_FAILURE",
    "ControlBlock",
    "Failure",
    "InUse",
    "ItemError",
    "Pool",
    "Service",
    "SharedFile",
    "SharedLock",
    "SpinGate",
    "Worker",
    "apply_context",
    "check_method",
    "exclusive",
    "fork_server",
    "gather_context",
    "interrupted",
    "other_process",
    "pickled",
    "uninterrupted",
]
