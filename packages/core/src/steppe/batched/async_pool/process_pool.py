"""ProcessorAsyncEnvPool: a pool whose environments have a worker process each."""

from __future__ import annotations

from steppe.batched.async_pool.async_env_pool import AsyncEnvPool
from steppe.batched.backends.processes import AsyncProcesses
from steppe.batched.parallel import worker_pids
from steppe.workers import check_method

__all__ = ["ProcessorAsyncEnvPool"]


class ProcessorAsyncEnvPool(AsyncEnvPool):
    """An :class:`AsyncEnvPool` whose environments have a worker process each.

    Workers, shared memory and errors are those of :class:`ParallelEnv`: data of fixed shapes is written into shared
    memory, and a command flag wakes the worker. Other data, and data of unequal environments, travels in messages.
    """

    backend = "multiprocessing"

    def _check_start_method(self, method: str | None) -> None:
        check_method(method)

    def _make_backend(self) -> AsyncProcesses:
        return AsyncProcesses(
            self._pending.change,
            self._factories,
            method=self.mp_start_method,
            step_timeout=self.step_timeout,
            shutdown_timeout=self._shutdown_timeout,
        )

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty before ``start`` and after ``close``."""
        return worker_pids(self)
