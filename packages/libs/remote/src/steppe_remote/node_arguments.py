"""The arguments that all collectors on several machines have."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from steppe import ParallelEnv, SerialEnv
from steppe.collectors import Collector, MultiaSyncDataCollector, MultiSyncDataCollector, SyncDataCollector
from steppe.errors import ArgumentError, NotSupported, SpecError
from steppe_remote.nested_link import WorkersOfNode

__all__ = ["makers_of_nodes", "weight_update_hook"]

#: The classes whose work a node can do, by TorchRL's names of them.
_CLASSES: dict[str | None, type[Collector]] = {
    None: SyncDataCollector,
    "single": SyncDataCollector,
    "multi_sync": MultiSyncDataCollector,
    "multi_async": MultiaSyncDataCollector,
}


def makers_of_nodes(
    name: str,
    create_env_fn: Any,
    num_nodes: int | None,
    num_workers: int,
    collector_class: type[Collector] | str | None,
    *,
    argument: str = "num_collectors",
) -> list[Any]:
    """Return the function that makes the environments of each node.

    >>> from steppe_remote import makers_of_nodes
    >>> makers = makers_of_nodes("MyCollector", "gym:CartPole-v1", 2, 4, "single")
    >>> len(makers), makers[0]().batch_size
    (2, torch.Size([4]))

    Args:
        name: of the collector, for errors.
        create_env_fn: makes one environment, or is its id; or a list with one for each node.
        num_nodes: the number of nodes; None: as many as the list has, or 1.
        num_workers: the number of environments of a node.
        collector_class: a class that collects in one process, or in several: then so do the environments of a node.
            Its name in TorchRL's form, such as ``"multi_async"``, is the same.
        argument: the name of the argument ``num_nodes``.

    Raises:
        ArgumentError: ``num_nodes`` differs from the length of the list.
        SpecError: there is no node, or ``num_workers`` is less than 1.
        NotSupported: ``collector_class`` is another class.
    """
    makers = list(create_env_fn) if isinstance(create_env_fn, (list, tuple)) else [create_env_fn] * (num_nodes or 1)
    if num_nodes is not None and num_nodes != len(makers):
        raise ArgumentError(f"{name}: {argument}={num_nodes}, and create_env_fn lists {len(makers)}.")
    if not makers or num_workers < 1:
        raise SpecError(f"{name} needs at least one environment, found {len(makers)} nodes of {num_workers}.")
    named = collector_class is None or isinstance(collector_class, str)
    chosen: Any = _CLASSES.get(collector_class) if named else collector_class  # type: ignore[arg-type]
    if not isinstance(chosen, type) or chosen not in (Collector, *_CLASSES.values()):
        raise NotSupported(
            f"{name}: collector_class is SyncDataCollector, MultiSyncDataCollector or MultiaSyncDataCollector, found "
            f"{collector_class!r}."
        )
    if chosen is MultiaSyncDataCollector:
        return [WorkersOfNode(maker, num_workers) for maker in makers]
    if num_workers == 1:
        return makers
    batch = ParallelEnv if chosen is MultiSyncDataCollector else SerialEnv
    return [partial(batch, num_workers, maker) for maker in makers]


def weight_update_hook(collector: Collector, interval: int, hook: Callable[[], Any] | None) -> Callable[[], Any] | None:
    """Return a ``pre_collect_hook`` that updates the weights of the workers at least every ``interval`` batches.

    >>> import torch
    >>> from steppe import CategoricalActor, Collector
    >>> from steppe_remote import weight_update_hook
    >>> actor = CategoricalActor(torch.nn.Linear(4, 2))
    >>> collector = Collector("gym:CartPole-v1", actor, frames_per_batch=10)
    >>> update = weight_update_hook(collector, 2, None)
    >>> for _ in range(5):
    ...     update()
    >>> collector.policy_version
    2
    >>> collector.shutdown()

    Args:
        collector: the collector whose weights are updated.
        interval: the number of batches; 0 or less: never.
        hook: the hook of the caller, which is called too.
    """
    if interval <= 0:
        return hook
    state = [0, 0]  # the version that was last seen, and the batches since

    def update() -> None:
        if hook is not None:
            hook()
        version = collector.policy_version
        if version != state[0]:
            state[:] = [version, 0]
        elif state[1] >= interval:
            collector.update_policy_weights_()
            state[:] = [collector.policy_version, 0]
        state[1] += 1

    return update
