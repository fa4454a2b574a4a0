"""Many environments as one: in this process, or in worker processes."""

from __future__ import annotations

from steppe.batched.async_pool.async_env_pool import AsyncEnvPool, ProcessorAsyncEnvPool, ThreadingAsyncEnvPool
from steppe.batched.base import BatchedEnv
from steppe.batched.factories import EnvCreator, as_factory, env_creator
from steppe.batched.parallel import ParallelEnv
from steppe.batched.serial import SerialEnv

__all__ = [
    "AsyncEnvPool",
    "BatchedEnv",
    "EnvCreator",
    "ParallelEnv",
    "ProcessorAsyncEnvPool",
    "SerialEnv",
    "ThreadingAsyncEnvPool",
    "as_factory",
    "env_creator",
]
