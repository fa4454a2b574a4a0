"""The interface of a collector to the processes that collect."""

from __future__ import annotations

from typing import Any

import pytest

from steppe import Collector
from steppe.collectors.collector_backend import CollectorBackend
from steppe.errors import NotSupported


@pytest.mark.parametrize("workers", [0, 1])
def test_both_backends_implement_the_whole_interface(workers: int) -> None:
    with Collector("gym:CartPole-v1", num_workers=workers, frames_per_batch=8) as collector:
        assert isinstance(collector.backend, CollectorBackend)
        assert collector.backend.num_workers == workers
        assert next(collector).numel() == 8
        assert collector.backend.settle() == 0, "no worker writes to a replay buffer"


def test_a_backend_without_an_abstract_method_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="update_weights"):
        backend_without("update_weights")(None)


def test_a_backend_may_not_reach_attributes_of_environments() -> None:
    with Collector("gym:CartPole-v1", frames_per_batch=8) as collector:
        backend = backend_without()(collector)
        with pytest.raises(NotSupported, match="Minimal does not reach attributes"):
            backend.call_envs("spec", None)
        with pytest.raises(NotSupported, match="Minimal does not reach attributes"):
            backend.set_in_envs("spec", [1])
        assert backend.settle(timeout=0.1) == 0


def backend_without(*left_out: str) -> Any:
    """Return a backend with the abstract methods, which do nothing, but for some."""
    names = CollectorBackend.__abstractmethods__ - set(left_out)
    return type("Minimal", (CollectorBackend,), dict.fromkeys(names, lambda self, *args, **kwargs: None))
