"""Batches: factories, refused arguments, and rows with different specs."""

from __future__ import annotations

import threading
import warnings
from functools import partial
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.errors import SteppeError, WorkerError
from steppe_testing import (
    ArrayCountingEnv,
    DynamicSpecEnv,
    FailingEnv,
    HeterogeneousCountingEnv,
    TextCountingEnv,
)


def test_in_one_process_the_exception_keeps_its_type() -> None:
    env = SerialEnv(3, [ArrayCountingEnv, partial(FailingEnv, error=ZeroDivisionError), ArrayCountingEnv])

    with pytest.raises(ZeroDivisionError, match="FailingEnv failed in step 3"):
        env.rollout(10)

    env.close()


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


class TestRowsThatDiffer:
    """Rows with different shapes or entries."""

    def test_a_growing_observation_is_reset_row_by_row(self):
        """Each row of a growing observation is reset by its own mask."""
        env = SerialEnv(2, [lambda: DynamicSpecEnv(5)] * 2)
        td = env.reset()
        for _ in range(3):
            td = env.step_mdp(env.rand_step(td))

        td["_reset"] = torch.tensor([[True], [False]])
        td = env.reset(td)

        assert [row["observation"].shape for row in td.unbind(0)] == [(3, 1, 2), (3, 4, 2)]

    def test_a_reset_returns_entries_of_single_agents(self):
        env = SerialEnv(2, [HeterogeneousCountingEnv] * 2)

        agents = env.reset().unbind(0)[1]["agents"].unbind(0)

        assert [name for agent in agents for name in sorted(agent.keys())] == [
            *("observation", "own_0"),
            *("observation", "own_1"),
            *("observation", "own_2"),
        ]

    def test_roots_have_the_same_entries_with_and_without_resets(self):
        env = SerialEnv(2, [lambda: TextCountingEnv(2)] * 2)
        td = env.reset()

        roots = []
        for _ in range(3):
            _, td = env.step_and_maybe_reset(env.rand_action(td))
            roots.append(set(td.keys()))

        assert roots[0] == roots[1] == roots[2]
        assert "action" in roots[0]
