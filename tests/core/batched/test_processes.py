"""Environments in worker processes, and in the caller's share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import ParallelEnv
from steppe_testing import ArrayCountingEnv

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]


def data(env: Any) -> Any:
    with env:
        env.set_seed(3)
        return env.rollout(30, break_when_any_done=False)


def test_num_threads_is_what_torch_uses_while_workers_run() -> None:
    before = torch.get_num_threads()
    try:
        with ParallelEnv(2, ArrayCountingEnv, num_processes=1, num_threads=1) as env:
            env.reset()
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
