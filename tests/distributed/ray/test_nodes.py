"""Clusters of several nodes, all of them on this machine."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray")

import ray

from steppe.errors import WorkerError
from steppe_ray import RayCollector
from steppe_testing import ArrayCountingEnv
from tests.distributed.ray.test_ray_collector import collect_until_it_fails

pytestmark = pytest.mark.matrix


def test_the_actors_of_a_lost_node_are_named() -> None:
    """A cluster of two nodes on this machine, of which one is killed."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        lost = cluster.add_node(num_cpus=1, resources={"far": 1.0})
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        configs: list[dict[str, Any]] = [{"num_cpus": 1}, {"num_cpus": 1, "resources": {"far": 1.0}}]
        arguments: dict[str, Any] = {"frames_per_batch": 8, "sync": True, "remote_configs": configs}
        with RayCollector([ArrayCountingEnv] * 2, **arguments) as collector:
            nodes = {node for node, _ in collector.backend.pool.places.values()}
            assert len(nodes) == 2
            next(collector)
            cluster.remove_node(lost, allow_graceful=False)
            with pytest.raises(WorkerError, match="Worker 1 ended unexpectedly: its actor"):
                collect_until_it_fails(collector)
    finally:
        ray.shutdown()
        cluster.shutdown()
