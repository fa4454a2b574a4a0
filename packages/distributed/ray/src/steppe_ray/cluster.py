"""Connect to a Ray cluster, and find out whether it can run what is asked of it, before anything hangs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import ray

from steppe.errors import SteppeError

__all__ = ["ClusterError", "check_resources", "connect", "needed_resources"]

#: Seconds that the head of a cluster has to accept a connection.
_CONNECT = 5.0

#: How options of an actor name the resources of a cluster.
_RESOURCES = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


class ClusterError(SteppeError, RuntimeError):
    """A Ray cluster cannot be reached, or lacks the resources that an actor asks for."""


def connect(name: str, config: Mapping[str, Any] | None) -> bool:
    """Connect to a cluster, unless this process is connected; start one on this machine if no address is known.

    Args:
        name: of the class that needs it, for errors.
        config: arguments of ``ray.init``.

    Returns:
        Whether this call has connected, and the caller thus disconnects with ``ray.shutdown()``.

    Raises:
        ClusterError: nothing accepts connections at the address.
    """
    if ray.is_initialized():
        return False
    settings = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False, **(config or {})}
    address = settings.get("address") or os.environ.get("RAY_ADDRESS")
    if address not in (None, "", "auto", "local"):
        _check_address(name, str(address))
        for option in ("include_dashboard", "num_cpus", "num_gpus"):
            settings.pop(option, None)  # these describe a cluster that is started
    try:
        ray.init(**settings)
    except (OSError, RuntimeError) as error:  # ConnectionError and TimeoutError are OSErrors
        raise ClusterError(
            f"{name}: no connection to a Ray cluster: {error}. If the path of a socket is too long, set RAY_TMPDIR to "
            "a folder with a short path, such as /tmp."
        ) from error
    return True


def _check_address(name: str, address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(
            f"{name}: the address of a Ray cluster is 'host:port', as `ray start --head` prints it, found {address!r}."
        )
    try:
        socket.create_connection((host, int(port)), _CONNECT).close()
    except OSError as error:
        raise ClusterError(
            f"{name}: no Ray cluster answers at {address} ({error}). Start one with `ray start --head --port={port}` "
            "on that machine, or leave address= out to start one here."
        ) from error


def check_resources(name: str, configs: Sequence[Mapping[str, Any]]) -> None:
    """Compare the resources that actors ask for with those of the cluster.

    Args:
        name: of the class that needs them, for errors.
        configs: the options of each actor.

    Raises:
        ClusterError: the whole cluster has less than all actors together need.
    """
    total = ray.cluster_resources()
    for resource, amount in needed_resources(configs).items():
        if amount > total.get(resource, 0.0):
            raise ClusterError(
                f"{name}: its {len(configs)} actors need {amount:g} of {resource!r}, and the cluster has "
                f"{total.get(resource, 0.0):g}. Ask for less with remote_configs=, such as {{'num_cpus': 0.5}}, take "
                "fewer actors, or add nodes."
            )


def needed_resources(configs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return what actors with these options need together, by the names of the cluster."""
    needed: dict[str, float] = {}
    for config in configs:
        amounts = {resource: config.get(option) for option, resource in _RESOURCES.items()}
        for resource, amount in {**amounts, **(config.get("resources") or {})}.items():
            if amount:
                needed[resource] = needed.get(resource, 0.0) + float(amount)
    return needed
