"""The collectors of TorchRL by name: each is a Collector with some arguments set."""

from __future__ import annotations

from typing import Any, ClassVar

from steppe.collectors.engine import Collector
from steppe.collectors.schedules import Continuous, Lockstep
from steppe.collectors.workers_backend import WorkersBackend
from steppe.errors import ArgumentError

__all__ = [
    *("AsyncCollector", "MultiAsyncCollector", "MultiSyncCollector"),
    *("MultiSyncDataCollector", "MultiaSyncDataCollector", "SyncDataCollector", "aSyncDataCollector"),
]


class SyncDataCollector(Collector):
    """Collect in the caller's process, between two iterations of its loop.

    Args:
        args, kwargs: see :class:`Collector`.
    """


class MultiSyncDataCollector(Collector):
    """Collect in lockstep: each batch holds the data of all workers, made with the latest weights.

    ``frames_per_batch``, about 200 by default, counts the frames of all workers, rounded up to whole rows of each
    worker with a warning; or a list, one for each worker. With B workers of T steps each:

    * one environment each: ``[B, T]`` for ``"stack"``, ``[B * T]`` for 0 and -1;
    * P environments each: ``[B, P, T]`` for ``"stack"``, ``[B * P, T]`` for 0, ``[P, B * T]`` for -1.

    Args:
        args, kwargs: see :class:`Collector`. ``create_env_fn`` is a list with one entry for each worker, or one for
            all of ``num_workers``; ``cat_results`` is ``"stack"``, the default, 0 or -1.
    """

    schedule: ClassVar[type[WorkersBackend] | None] = Lockstep


class MultiaSyncDataCollector(Collector):
    """Yield the batch of whichever worker has one, ``[T]`` or ``[P, T]``, and let that worker continue at once.

    ``frames_per_batch``, 200 by default, counts the frames of one worker. Data may have been made with weights that are
    a batch old: ``("collector", "policy_version")`` says which.

    Args:
        args, kwargs: as for :class:`MultiSyncDataCollector`, without ``cat_results``.
    """

    schedule: ClassVar[type[WorkersBackend] | None] = Continuous


class aSyncDataCollector(MultiaSyncDataCollector):
    """Collect in one worker while the caller learns.

    Args:
        create_env_fn: the factory of its environment.
        policy, kwargs: see :class:`Collector`.
    """

    def __init__(self, create_env_fn: Any, policy: Any = None, **kwargs: Any) -> None:
        makers = create_env_fn if isinstance(create_env_fn, (list, tuple)) else [create_env_fn]
        if len(makers) != 1:
            raise ArgumentError(f"{type(self).__name__} has one worker, and was given {len(makers)} environments.")
        super().__init__(list(makers), policy, **kwargs)


# TorchRL's names since 0.10; its Collector is the class of that name here.
AsyncCollector = aSyncDataCollector
MultiAsyncCollector = MultiaSyncDataCollector
MultiSyncCollector = MultiSyncDataCollector
