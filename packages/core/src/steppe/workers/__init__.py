"""Worker processes, whatever they do: how they start, what they are given, how they are called, and how they fail.

A consumer names the function that its workers run, ``Pool(n, "module:function")``; the function is given a
:class:`Worker`, and serves a :class:`Service` through it. Nothing here knows environments or collectors.
"""

from __future__ import annotations

from steppe.workers.channel import SpinGate
from steppe.workers.commands import Words
from steppe.workers.failures import Failure, SubjectError
from steppe.workers.in_use import InUse, exclusive
from steppe.workers.interrupts import uninterrupted
from steppe.workers.pickling import pickled
from steppe.workers.pool import (
    AFTER_AN_ERROR,
    PATIENCE,
    PATIENCE_AFTER_FAILURE,
    Pool,
    Ticket,
    interrupted,
    other_process,
)
from steppe.workers.sharing import SharedLock
from steppe.workers.start.fork_server import ForkServer, fork_server
from steppe.workers.start.preload import Loaded
from steppe.workers.start.process import METHODS, check_method
from steppe.workers.worker import Service, Worker

__all__ = [
    "AFTER_AN_ERROR",
    "METHODS",
    "PATIENCE",
    "PATIENCE_AFTER_FAILURE",
    "Failure",
    "ForkServer",
    "InUse",
    "Loaded",
    "Pool",
    "Service",
    "SharedLock",
    "SpinGate",
    "SubjectError",
    "Ticket",
    "Words",
    "Worker",
    "check_method",
    "exclusive",
    "fork_server",
    "interrupted",
    "other_process",
    "pickled",
    "uninterrupted",
]
