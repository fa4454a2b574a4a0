"""RayCollector: a collector whose workers are actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from steppe.collectors import Collector, Continuous, Lockstep, WorkerGroup
from steppe.errors import ArgumentError
from steppe_ray.cluster import check_resources, connect
from steppe_ray.ray_group import DEFAULT_CONFIG, RayGroup
from steppe_remote import InferenceCollector, makers_of_nodes, weight_update_hook

__all__ = ["RayCollector"]


class RayCollector(InferenceCollector):
    """Collect in actors of a Ray cluster, each with environments and a copy of the policy.

    It is a :class:`~steppe.Collector` in every other respect: the same data for the same seed, the same errors,
    weights, numbers of trajectories, requests (``execute``) and replay buffers. Weights are put into the object store
    once for each update, however many actors read them. An actor on the machine of the caller writes its batches to
    shared memory of the caller; the batches of others come through the object store.

    Args:
        create_env_fn: makes the environment of an actor; or a list with one for each actor.
        policy: see :class:`~steppe.Collector`.
        num_collectors: the number of actors, if ``create_env_fn`` is not a list. Default: 1.
        sync: True: each batch holds the data of all actors, ``[actors, ...]``, made with the latest weights, and
            ``frames_per_batch`` is that of all together. False: a batch is that of one actor, whichever is ready, and
            its data may have been made with weights that are a batch old.
        num_workers_per_collector: environments of each actor.
        collector_class: how an actor steps them. :class:`~steppe.SyncDataCollector`, the default: in its process.
            :class:`~steppe.MultiSyncDataCollector`: in as many processes, with one call of the policy for all of them.
            :class:`~steppe.MultiaSyncDataCollector`: in as many processes, each with a copy of the policy, and the
            batches of an actor are those of whichever process is ready.
        collector_kwargs: further arguments for the collectors of the actors.
        remote_configs: options of an actor, such as ``{"num_cpus": 2, "resources": {"fast": 1}}``; or a list with one
            for each. Default: one CPU.
        ray_init_config: arguments of ``ray.init``, if this process is not connected to a cluster, such as
            ``{"address": "10.0.0.1:6379"}``. Without an address, a cluster is started on this machine, which
            ``shutdown`` ends.
        update_after_each_batch: update the weights of the actors with every batch.
        max_weight_update_interval: update them before a batch if this many batches were collected since the last time.
        inference, max_batch_size, server_timeout: with ``inference="server"`` the policy acts in this process for all
            actors, see :class:`~steppe_remote.InferenceCollector`.
        restart: replace an actor that dies, with a warning. The replacement collects the batch that was lost again,
            within ``batch_timeout`` seconds. Without it, the death of an actor raises WorkerError.
        **kwargs: see :class:`~steppe.Collector`.

    Raises:
        ClusterError: the cluster cannot be reached, or has too few resources for the actors.
        WorkerError: an actor has died, or raised.

    Examples:
        >>> from steppe_ray import RayCollector
        >>> with RayCollector("gym:CartPole-v1", num_collectors=2, sync=True, frames_per_batch=200) as collector:
        ...     print(next(collector).shape)
        torch.Size([2, 100])
    """

    def __init__(
        self,
        create_env_fn: Any,
        policy: Any = None,
        *,
        num_collectors: int | None = None,
        sync: bool = False,
        num_workers_per_collector: int = 1,
        collector_class: type[Collector] | None = None,
        collector_kwargs: Mapping[str, Any] | None = None,
        remote_configs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        ray_init_config: Mapping[str, Any] | None = None,
        update_after_each_batch: bool = False,
        max_weight_update_interval: int = -1,
        restart: bool = False,
        pre_collect_hook: Callable[[], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        self._restart, self._remote_configs = restart, remote_configs
        makers = makers_of_nodes(name, create_env_fn, num_collectors, num_workers_per_collector, collector_class)
        self.configs_for(len(makers))  # before anything is started
        self.schedule = Lockstep if sync else Continuous  # type: ignore[misc]
        self._connected = connect(name, ray_init_config)
        hook = weight_update_hook(self, max_weight_update_interval, pre_collect_hook)
        settings = {**dict(collector_kwargs or {}), **kwargs, "pre_collect_hook": hook}
        if update_after_each_batch:
            settings["update_at_each_batch"] = True
        try:
            super().__init__(makers, policy, **settings)
        except BaseException:
            self._disconnect()
            raise

    def new_group(self, n: int, settings: Mapping[str, Any]) -> WorkerGroup:
        """Return the actors, not started yet."""
        name, configs = type(self).__name__, self.configs_for(n)
        check_resources(name, configs)
        timeouts = {"replace_timeout": settings["batch_timeout"], "start_timeout": settings["start_timeout"]}
        self._group = RayGroup(name, configs, restart=self._restart, **timeouts)
        self._group.joins_batches = self.schedule is Lockstep
        return self._group

    def inference_host(self) -> str | None:
        """Return the address of this node, where the actors find a policy that is served."""
        return str(ray.util.get_node_ip_address())

    def configs_for(self, n: int) -> list[dict[str, Any]]:
        """Return the options of each of ``n`` actors.

        Raises:
            SpecError: ``remote_configs`` lists another number.
        """
        configs = self._remote_configs
        if configs is None or isinstance(configs, Mapping):
            configs = [configs or {}] * n
        if len(configs) != n:
            raise ArgumentError(f"{type(self).__name__}: remote_configs lists {len(configs)} options for {n} actors.")
        return [{**DEFAULT_CONFIG, **config} for config in configs]

    def stats(self) -> dict[str, float]:
        """Counts as in every collector, and ``lost_frames``: of batches that were lost with actors that died."""
        of_one = self.frames_per_batch / (self.num_workers if self.schedule is Lockstep else 1)
        return {**super().stats(), "lost_frames": self._group.lost_batches * of_one}

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """End the actors, and the cluster if this collector has started it; see :meth:`Collector.shutdown`."""
        try:
            super().shutdown(timeout, close_env, raise_on_error)
        finally:
            if self.closed:
                self._disconnect()

    def _disconnect(self) -> None:
        if self._connected:
            self._connected = False
            ray.shutdown()
