"""Clusters that cannot be reached, or are too small; and what is left when a collector has started one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import Any

import psutil
import pytest

pytest.importorskip("ray")

import ray

from steppe_ray import RayCollector
from steppe_ray.cluster import ClusterError
from steppe_testing import ArrayCountingEnv
from tests.distributed.in_time import in_time
from tests.limits import CHILD

pytestmark = pytest.mark.matrix


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_does_not_answer_is_named(scheme: str) -> None:
    address = f"{scheme}127.0.0.1:{free_port()}"
    with in_time(), pytest.raises(ClusterError, match=rf"no Ray cluster answers at {address}.*ray start --head"):
        RayCollector(ArrayCountingEnv, frames_per_batch=4, ray_init_config={"address": address})


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(ClusterError, match="'host:port'"):
        RayCollector(ArrayCountingEnv, frames_per_batch=4, ray_init_config={"address": "somewhere"})


def test_actors_that_never_fit_are_refused_at_once(cluster: None) -> None:
    with in_time(), pytest.raises(ClusterError, match=r"2 actors need 40 of 'CPU', and the cluster has 8"):
        RayCollector(ArrayCountingEnv, num_collectors=2, frames_per_batch=4, remote_configs={"num_cpus": 20})
    with pytest.raises(ClusterError, match=r"need 1 of 'fast', and the cluster has 0"):
        RayCollector(ArrayCountingEnv, frames_per_batch=4, remote_configs={"resources": {"fast": 1}})


def test_actors_that_find_no_room_are_named_within_30_s(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import steppe_ray.ray_group

    assert steppe_ray.ray_group._PLACE < 30
    monkeypatch.setattr(steppe_ray.ray_group, "_PLACE", 3.0)
    holder = ray.remote(num_cpus=8)(Idle).remote()
    ray.get(holder.wait.remote())
    with in_time(), pytest.raises(ClusterError, match=r"was not started within 3 s. Free are .*remote_configs="):
        RayCollector(ArrayCountingEnv, frames_per_batch=4)
    ray.kill(holder)


class Idle:
    def wait(self) -> None:
        pass


def test_a_collector_ends_the_cluster_that_it_started() -> None:
    script = (
        "import ray\n"
        "from steppe_ray import RayCollector\n"
        "from steppe_testing import ArrayCountingEnv\n"
        "with RayCollector(ArrayCountingEnv, frames_per_batch=4) as collector:\n"
        "    print(next(collector).shape, ray.is_initialized())\n"
        "print(ray.is_initialized())\n"
    )
    before = {process.pid for process in ray_processes()}
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=CHILD, env=environment, check=False
    )

    assert result.stdout.splitlines() == ["torch.Size([4]) True", "False"], result.stderr
    end = time.monotonic() + 30
    while (left := {process.pid for process in ray_processes()} - before) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def ray_processes() -> list[Any]:
    """The processes of clusters on this machine."""
    names = ("raylet", "gcs_server", "ray::")
    return [
        process
        for process in psutil.process_iter(["name", "cmdline", "status"])
        if process.info["status"] != psutil.STATUS_ZOMBIE
        and any(name in " ".join(process.info["cmdline"] or [process.info["name"]]) for name in names)
    ]
