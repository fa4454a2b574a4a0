"""Asynchronous pools: environments that step at their own pace.

Environments step in threads or processes while the caller does something else.
"""

from __future__ import annotations

from steppe_pools.async_batched_collector import AsyncBatchedCollector
from steppe_pools.async_env_pool import AsyncEnvPool, ProcessorAsyncEnvPool, ThreadingAsyncEnvPool

__all__ = ["AsyncBatchedCollector", "AsyncEnvPool", "ProcessorAsyncEnvPool", "ThreadingAsyncEnvPool"]
