"""Worker pools that tests share, because starting a pool takes long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["WorkerPools"]


class WorkerPools:
    """Make one ``ParallelEnv`` for each factory, and close them all at the end.

    >>> from steppe_testing import ArrayCountingEnv, WorkerPools
    >>> pools = WorkerPools()  # the fixture steppe_pools
    >>> env = pools(ArrayCountingEnv)
    >>> env.rollout(3).shape, pools(ArrayCountingEnv) is env
    (torch.Size([2, 3]), True)
    >>> pools.close()

    Args:
        processes: number of worker processes of a pool.
        alive: maximum number of open pools; the least recently used one is closed first.
    """

    def __init__(self, processes: int = 2, *, alive: int = 2) -> None:
        self.processes = processes
        self.alive = alive
        self._pools: dict[bytes, Any] = {}

    def __call__(self, factory: Callable[[], Any], num_envs: int = 2) -> Any:
        """Return an open ``ParallelEnv`` of ``num_envs`` environments.

        If the pool of the factory was closed, a new one is made.

        Args:
            factory: function that makes one environment. Factories that pickle to the same bytes share a pool.
            num_envs: number of environments.
        """
        import cloudpickle

        from steppe.batched import ParallelEnv

        key = cloudpickle.dumps((factory, num_envs))
        pool = self._pools.pop(key, None)
        if pool is not None and pool.is_closed:
            pool = None
        if pool is None:
            while len(self._pools) >= self.alive:
                self._close(next(iter(self._pools)))
            pool = ParallelEnv(num_envs, factory, num_processes=min(self.processes, num_envs))
        self._pools[key] = pool
        return pool

    def close(self) -> None:
        """Close every pool."""
        for key in list(self._pools):
            self._close(key)

    def _close(self, key: bytes) -> None:
        self._pools.pop(key).close(raise_if_closed=False)
