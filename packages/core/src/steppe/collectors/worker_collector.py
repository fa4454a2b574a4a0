"""A collector whose lanes are spread over worker processes."""

from __future__ import annotations

from typing import Any

from steppe.collectors.engine import Collector
from steppe.collectors.presets import MultiSyncDataCollector

__all__ = ["WorkerCollector"]


@Collector.register
class WorkerCollector(MultiSyncDataCollector):
    """What ``Collector(..., num_workers=n)`` makes: requests and batches of the environments of all workers.

    A lane is an environment of a worker, counted worker after worker. Batches are ``[lanes, T]``, and need
    ``frames_per_batch``; requests do not.

    Args:
        create_env_fn: see :class:`~steppe.Collector`; each worker makes what it makes. A list has one for each.
        policy: see there; each worker is sent a copy.
        **kwargs: see there, and :class:`~steppe.MultiSyncDataCollector`.
    """

    _iterates_by_default = False

    def __init__(self, create_env_fn: Any, policy: Any = None, **kwargs: Any) -> None:
        if "cat_results" in kwargs:
            raise TypeError("Collector: cat_results= is for MultiSyncDataCollector; here batches are [lanes, T].")
        super().__init__(create_env_fn, policy, **kwargs)

    def _frames_of_batch(self) -> int:
        self.cat_results = 0 if self.env_batch_size else "stack"
        return super()._frames_of_batch()
