"""Collectors whose workers are nodes: processes that a launcher starts, on this machine or on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from steppe.collectors import Collector, Continuous, Lockstep, WorkerGroup
from steppe_distributed.channel import check_backend, check_gpus
from steppe_distributed.launchers import TorchrunLauncher, launcher_for
from steppe_distributed.node_group import ProcessGroupNodes, RpcNodes
from steppe_distributed.rendezvous import host_name
from steppe_remote import InferenceCollector, makers_of_nodes, weight_update_hook

__all__ = ["DistributedDataCollector", "DistributedSyncDataCollector", "RPCDataCollector"]


class _NodeCollector(InferenceCollector):
    """The arguments and the group of collectors on nodes."""

    uses_rpc: ClassVar[bool] = False

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        sync: bool = False,
        backend: str = "gloo",
        launcher: str = "mp",
        slurm_kwargs: Mapping[str, Any] | None = None,
        tcp_port: int | str | None = None,
        num_collectors: int | None = None,
        num_workers_per_collector: int = 1,
        collector_class: type[Collector] | str | None = None,
        collector_kwargs: Mapping[str, Any] | None = None,
        update_after_each_batch: bool = False,
        max_weight_update_interval: int = -1,
        update_interval: int | None = None,
        pre_collect_hook: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        makers = makers_of_nodes(name, create_env_fn, num_collectors, num_workers_per_collector, collector_class)
        self.schedule = Lockstep if sync else Continuous  # type: ignore[misc]
        self._transport = "rpc" if self.uses_rpc else backend
        if not self.uses_rpc:
            check_backend(backend)
        self._port = None if tcp_port is None else int(tcp_port)
        self._launcher = launcher_for(launcher, slurm_kwargs)
        if self._launcher.is_local:
            check_gpus(self._transport, 1 + len(makers))
        if isinstance(self._launcher, TorchrunLauncher):
            self._launcher.become_node(self._transport)
        interval = max_weight_update_interval if update_interval is None else update_interval
        settings = {**dict(collector_kwargs or {}), **kwargs}
        if update_after_each_batch or interval == 1:
            settings["update_at_each_batch"], interval = policy is not None, -1
        settings["pre_collect_hook"] = weight_update_hook(self, interval, pre_collect_hook)
        super().__init__(makers, policy, **settings)

    def new_group(self, n: int, settings: Mapping[str, Any]) -> WorkerGroup:
        """Return the nodes, not started yet."""
        kind = RpcNodes if self.uses_rpc else ProcessGroupNodes
        timeout = settings["start_timeout"]
        group = kind(type(self).__name__, n, self._launcher, self._transport, self._port, timeout)
        group.joins_batches = self.schedule is Lockstep
        return group

    def inference_host(self) -> str | None:
        """Return the name under which nodes find this machine; None if they are on it."""
        return None if self._launcher.is_local else host_name(local=False)


class DistributedDataCollector(_NodeCollector):
    """Collect on nodes that exchange messages over a process group of torch.distributed.

    It is a :class:`~steppe.Collector` in every other respect: the same data for the same seed, the same errors,
    weights, numbers of trajectories and requests. The process group is its own: the default group of the program is
    not touched.

    Args:
        create_env_fn: makes the environment of a node; or a list with one for each node.
        policy: see :class:`~steppe.Collector`.
        num_collectors: the number of nodes, if ``create_env_fn`` is not a list. Default: 1.
        sync: True: each batch holds the data of all nodes, made with the latest weights, and ``frames_per_batch`` is
            that of all together. False: a batch is that of one node, whichever is ready.
        backend: ``"gloo"``; ``"nccl"``, which sends messages through GPUs; or ``"mpi"``, if torch was built with it.
        launcher: ``"mp"``: processes of this machine; ``"submitit"``: jobs of Slurm, or of this machine where there is
            no Slurm; ``"submitit_delayed"``: jobs that :func:`submitit_delayed_launcher` has started; ``"torchrun"``:
            the other ranks of ``torchrun``, which run the same program, and become nodes here.
        slurm_kwargs: options of the jobs of submitit, and ``folder`` for their logs.
        tcp_port: the port where nodes meet; None: a free one.
        num_workers_per_collector: environments of each node.
        collector_class: how a node steps them: in its process (:class:`~steppe.SyncDataCollector`); in processes with
            one call of the policy for all of them (:class:`~steppe.MultiSyncDataCollector`); or in processes that each
            have a policy, and deliver their batches alone (:class:`~steppe.MultiaSyncDataCollector`).
        inference, max_batch_size, server_timeout: with ``inference="server"`` the policy acts in this process for all
            nodes, see :class:`~steppe_remote.InferenceCollector`.
        collector_kwargs: further arguments for the collectors of nodes.
        update_after_each_batch: update the weights of nodes with every batch.
        max_weight_update_interval, update_interval: update them before a batch if this many batches were collected
            since the last time; 1: with every batch.
        kwargs: see :class:`~steppe.Collector`.

    Raises:
        NodeError: nodes cannot be started, or do not come within ``start_timeout``; the port is in use.
        BackendError: torch was built without the backend.
        WorkerError: a node has ended, or raised.

    Examples:
        >>> from steppe_distributed import DistributedDataCollector
        >>> with DistributedDataCollector("gym:CartPole-v1", num_collectors=2, frames_per_batch=100) as collector:
        ...     print(next(collector).shape)
        torch.Size([100])
    """


class DistributedSyncDataCollector(_NodeCollector):
    """Collect on nodes in lockstep: each batch holds the data of all nodes, made with the latest weights.

    >>> from steppe import DistributedSyncDataCollector
    >>> with DistributedSyncDataCollector(["gym:CartPole-v1"] * 2, frames_per_batch=40, total_frames=40) as collector:
    ...     [batch.shape for batch in collector]
    [torch.Size([2, 20])]

    Args:
        create_env_fn, policy, kwargs: see :class:`DistributedDataCollector`, without ``sync``.
        update_interval: update the weights of nodes after this many batches. Default: with every batch.
    """

    def __init__(self, create_env_fn: Any, policy: Any = None, *, update_interval: int = 1, **kwargs: Any) -> None:
        super().__init__(create_env_fn, policy, sync=True, update_interval=update_interval, **kwargs)


class RPCDataCollector(_NodeCollector):
    """Collect on nodes that are called by torch's RPC, of which a process has one at a time.

    A second collector can be made after ``shutdown`` of the first. RPC that the program has started itself must be shut
    down too.

    >>> from steppe import RPCDataCollector
    >>> with RPCDataCollector(["gym:CartPole-v1"], frames_per_batch=40, total_frames=40) as collector:
    ...     [batch.shape for batch in collector]
    [torch.Size([40])]

    Args:
        create_env_fn, policy, kwargs: see :class:`DistributedDataCollector`, without ``backend``.
    """

    uses_rpc = True
