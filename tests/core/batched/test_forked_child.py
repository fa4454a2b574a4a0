"""A batch in a child that was forked after its start: the workers stay the parent's."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import torch

from steppe import AsyncEnvPool, ParallelEnv, SerialEnv
from steppe.errors import StateError
from steppe_testing import ArrayCountingEnv, TextCountingEnv
from tests.processes import in_child

pytestmark = [
    pytest.mark.programs,
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of forking beside threads
]

BATCHES = {
    "parallel": partial(ParallelEnv, 2, ArrayCountingEnv, num_processes=2),
    "messages": partial(ParallelEnv, 2, TextCountingEnv, num_processes=1),
    "share": partial(ParallelEnv, 2, ArrayCountingEnv, num_processes=2, caller_share=True),
    "processes": partial(AsyncEnvPool, [ArrayCountingEnv] * 2, backend="multiprocessing"),
    "threads": partial(AsyncEnvPool, [ArrayCountingEnv] * 2, backend="threading"),
}


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_forked_child_must_make_its_own_batch(make: Any) -> None:
    """A forked child cannot use the batch of its parent, and the parent still can."""
    with make() as env:
        td = env.rand_action(env.reset())

        calls = [lambda: env.step(td), env.reset, lambda: env.step_and_maybe_reset(td), lambda: env.set_seed(0)]
        for call in calls:
            assert in_child(call).startswith(
                f"StateError: This {type(env).__name__} was started in process {os.getpid()}"
            )

        assert env.step(td)["next", "observation"].flatten().tolist() == [1, 1]


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_closing_in_a_forked_child_leaves_the_parent_open(make: Any) -> None:
    with make() as env:
        td = env.rand_action(env.reset())

        assert in_child(lambda: env.close() or "closed") == "closed"
        assert env.step(td)["next", "observation"].flatten().tolist() == [1, 1]


def test_a_forked_child_can_make_batches() -> None:
    with ParallelEnv(2, ArrayCountingEnv, num_processes=2) as env:
        env.reset()

        def make() -> list[float]:
            with ParallelEnv(2, partial(ArrayCountingEnv, start=5), num_processes=2) as own:
                return own.reset()["observation"].flatten().tolist()

        assert in_child(make) == "[5.0, 5.0]"
        assert env.reset()["observation"].flatten().tolist() == [0, 0]


def test_a_serial_env_is_a_copy_in_a_child() -> None:
    with SerialEnv(2, ArrayCountingEnv) as env:
        td = env.rand_action(env.reset())

        assert in_child(lambda: env.step(td)["next", "observation"].flatten().tolist()) == "[1.0, 1.0]"
        assert env.step(td)["next", "observation"].flatten().tolist() == [1, 1]


def test_a_data_loader_worker_must_make_its_own_batch() -> None:
    """The error for a batch used in a DataLoader worker names worker_init_fn."""

    class Steps(torch.utils.data.IterableDataset[Any]):
        def __init__(self, env: Any) -> None:
            self.env = env

        def __iter__(self) -> Any:
            yield self.env.rollout(2)

    with ParallelEnv(2, ArrayCountingEnv, num_processes=2) as env:
        env.reset()
        loader = torch.utils.data.DataLoader(Steps(env), batch_size=None, num_workers=1, multiprocessing_context="fork")
        with pytest.raises(StateError, match="worker_init_fn of a DataLoader"):
            next(iter(loader))
        assert env.rollout(2).shape == (2, 2)
