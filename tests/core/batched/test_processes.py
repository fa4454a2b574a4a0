"""Environments in worker processes, and in the caller's share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.errors import WorkerError
from steppe_testing import ArrayCountingEnv, CountingEnv, FailingEnv

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]


def data(env: Any) -> Any:
    with env:
        env.set_seed(3)
        return env.rollout(30, break_when_any_done=False)


@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_a_share_of_the_caller_gives_the_same_data(make: Any) -> None:
    shared = data(ParallelEnv(5, lambda: make(max_steps=4), num_processes=2, caller_share=True))

    assert (shared == data(SerialEnv(5, lambda: make(max_steps=4)))).all()


def test_an_exception_in_the_callers_share_names_the_environment() -> None:
    env = ParallelEnv(2, [FailingEnv, ArrayCountingEnv], num_processes=2, caller_share=True)

    with pytest.raises(WorkerError, match="caller's share raised in step of environment 0") as caught:
        env.rollout(10)

    assert caught.value.env == 0
    assert isinstance(caught.value.__cause__, RuntimeError)
    env.close()


def test_num_threads_is_what_torch_uses_while_workers_run() -> None:
    before = torch.get_num_threads()
    try:
        with ParallelEnv(2, ArrayCountingEnv, num_processes=1, num_threads=1) as env:
            env.reset()
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
