"""The arguments that each worker of a collector is sent."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from steppe import Collector
from steppe.collectors.worker_messages import tasks_of
from steppe.errors import ArgumentError


def settings(**changes: Any) -> dict[str, Any]:
    """The arguments of a collector with their defaults."""
    parameters = inspect.signature(Collector).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters} | changes


def tasks(n: int, **changes: Any) -> list[dict[str, Any]]:
    makers = [f"maker {i}" for i in range(n)]
    return tasks_of("Herd", makers, list(range(10, 10 + n)), settings(**changes), interruptible=False)


def test_each_worker_gets_its_environment_and_frames() -> None:
    sent = tasks(3)

    assert [task["create_env_fn"] for task in sent] == ["maker 0", "maker 1", "maker 2"]
    assert [task["frames_per_batch"] for task in sent] == [10, 11, 12]


def test_tasks_hold_arguments_of_a_collector_alone() -> None:
    assert tasks(1)[0].keys() <= inspect.signature(Collector).parameters.keys()


def test_one_value_is_sent_to_all_workers() -> None:
    assert [task["max_frames_per_traj"] for task in tasks(2, max_frames_per_traj=7)] == [7, 7]
    assert [task["create_env_kwargs"] for task in tasks(2, create_env_kwargs={"a": 1})] == [{"a": 1}] * 2


def test_a_list_has_a_value_for_each_worker() -> None:
    sent = tasks(2, create_env_kwargs=[{"a": 1}, {"a": 2}], policy_device=["cpu", "meta"])

    assert [task["create_env_kwargs"] for task in sent] == [{"a": 1}, {"a": 2}]
    assert [task["policy_device"] for task in sent] == ["cpu", "meta"]


def test_a_list_for_another_number_of_workers_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="Herd: env_device lists 2 values for 3 workers"):
        tasks(3, env_device=["cpu", "cpu"])


def test_a_worker_with_a_device_stores_on_the_cpu() -> None:
    """Batches leave a worker through shared memory of the host."""
    sent = tasks(2, device=["meta", None])

    assert [task["storing_device"] for task in sent] == ["cpu", None]
