"""Batches: factories, refused arguments, and rows with different specs."""

from __future__ import annotations

import threading
import warnings
from functools import partial
from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv
from steppe.errors import SteppeError, WorkerError
from steppe_testing import (
    ArrayCountingEnv,
)


class Here(ArrayCountingEnv):
    """A class of a module that no other process can import."""


def test_code_that_cannot_be_imported_travels_by_value() -> None:
    """Classes and functions of modules that workers cannot import are sent by value."""
    scale = 3
    with ParallelEnv(2, lambda: Here(max_steps=scale), num_processes=1) as env:
        data = env.rollout(10)

    assert data.shape == (2, 3)


def test_an_unpicklable_factory_is_named_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """If a factory cannot be pickled, the error says so, and nothing else is printed."""
    lock = threading.Lock()
    env = ParallelEnv(2, lambda: (lock, ArrayCountingEnv())[1])

    with pytest.raises(WorkerError, match="cannot be sent to a worker process: TypeError"):
        env.reset()

    env.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("kind", [SerialEnv, partial(ParallelEnv, num_processes=2)])
def test_an_invalid_seed_leaves_the_batch_usable(kind: Any) -> None:
    with kind(2, ArrayCountingEnv) as env:
        for seed in ("a", -1, 1.5):
            with pytest.raises(SteppeError, match="A seed is a whole number >= 0"):
                env.set_seed(seed)
        assert env.rollout(3).batch_size == (2, 3)


def test_a_warning_filter_of_a_main_class_stops_no_worker() -> None:
    """A warning filter for a class in __main__ does not stop a worker."""
    category = type("Local", (UserWarning,), {"__module__": "__main__"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        with ParallelEnv(2, ArrayCountingEnv, num_processes=1) as env:
            assert env.rollout(2).shape == (2, 2)
