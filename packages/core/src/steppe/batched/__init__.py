"""Many environments as one: in this process, or in worker processes."""

from __future__ import annotations

from steppe.batched.base import BatchedEnv
from steppe.batched.creator import EnvCreator, as_factory
from steppe.batched.parallel import ParallelEnv
from steppe.batched.serial import SerialEnv

__all__ = ["BatchedEnv", "EnvCreator", "ParallelEnv", "SerialEnv", "as_factory"]
