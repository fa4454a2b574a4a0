"""The members of a collector for requests, which another package implements."""

from __future__ import annotations

from typing import Any

import pytest

from steppe import Collector
from steppe.errors import ClassNotFound, ClosedError
from steppe.registry import Registry, use
from steppe_testing import ArrayCountingEnv

ENGINE = """
class Requests:
    def __init__(self, collector):
        self.calls = []
    def execute(self, **kwargs):
        return "a job", kwargs
    n_live = 4
    def reset(self, kwargs):
        self.calls.append(("reset", kwargs))
    def check_idle(self):
        self.calls.append("check_idle")
    def forget(self):
        self.calls.append("forget")
    def anew(self):
        return type(self)(None)
"""


@pytest.fixture
def collector() -> Any:
    with Collector(ArrayCountingEnv(100, env_info=True), frames_per_batch=3) as made:
        yield made


@pytest.fixture
def engine(fake_dist: Any, steppe_registry: Any) -> Any:
    """A package whose engine notes its calls; tests of steppe-agents use the real one."""
    fake_dist(
        "acme-herd",
        entry_points={"steppe.collectors": {"Requests": "acme_herd:Requests"}},
        files={"acme_herd.py": ENGINE},
    )
    with use(Registry(path=[str(fake_dist.path)])):
        yield


def test_a_request_without_its_package_names_what_to_install(collector: Any) -> None:
    with (
        use(Registry(path=[])),
        pytest.raises(ClassNotFound, match=r"It is in steppe-agents: pip install 'steppe\[agents\]'"),
    ):
        collector.execute(n_episodes=1)


def test_iteration_needs_no_engine(collector: Any) -> None:
    with use(Registry(path=[])):
        assert next(collector)["observation"].flatten().tolist() == [0, 1, 2]
        collector.reset()
        assert next(collector)["observation"].flatten().tolist() == [0, 1, 2]


def test_members_call_the_engine(collector: Any, engine: None) -> None:
    assert collector.execute(n_steps=2) == ("a job", {"n_steps": 2})
    assert collector.n_live == 4
    assert collector.requests is collector.requests


def test_a_running_engine_receives_resets_and_batches(collector: Any, engine: None) -> None:
    calls = collector.requests.calls
    collector.reset(env_info={"start": 5})
    next(collector)

    assert calls == [("reset", {"env_info": {"start": 5}}), "forget"]


def test_seeding_begins_a_new_engine(collector: Any, engine: None) -> None:
    before = collector.requests
    collector.set_seed(4)

    assert before.calls == ["check_idle"]
    assert collector.requests is not before


def test_a_closed_collector_starts_no_requests(collector: Any, engine: None) -> None:
    collector.shutdown()

    with pytest.raises(ClosedError, match="shut down"):
        collector.execute(n_episodes=1)
