"""ParallelEnv: how its workers run."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch

from steppe import ParallelEnv
from steppe.errors import ArgumentError, IgnoredArgumentWarning, StateError
from steppe_testing import ArrayCountingEnv, CountingEnv


def test_configure_parallel_takes_constructor_arguments() -> None:
    """Before the start, configure_parallel accepts the arguments of the constructor."""
    env = ParallelEnv(3, ArrayCountingEnv)
    with pytest.warns(IgnoredArgumentWarning, match="memmap has no effect"):
        assert env.configure_parallel(num_processes=1, mp_start_method=None, memmap=True, step_timeout=5.0) is env
    with env:
        assert (env.memmap, env.step_timeout) == (True, 5.0)
        env.start()
        assert len(env.worker_pids) == 1
        with pytest.raises(StateError, match="configure_parallel comes before the first use"):
            env.configure_parallel(num_processes=2)


class Threads(CountingEnv):
    """An environment that returns the number of torch threads of its process."""

    @property
    def torch_threads(self) -> int:
        return torch.get_num_threads()


def test_num_sub_threads_is_what_torch_uses_in_workers() -> None:
    with ParallelEnv(2, Threads, num_processes=2) as one, ParallelEnv(2, Threads, num_sub_threads=2) as two:
        assert (one.torch_threads, two.torch_threads) == ([1, 1], [2, 2])
    with pytest.raises(ArgumentError, match="num_sub_threads=2 is not supported with mp_start_method='fork'"):
        ParallelEnv(2, Threads, num_sub_threads=2, mp_start_method="fork")


class SlowToClose(ArrayCountingEnv):
    """Never comes back from its end."""

    def close(self, **kwargs: Any) -> None:
        time.sleep(600)


def test_shutdown_timeout_limits_how_long_close_waits() -> None:
    env = ParallelEnv(1, SlowToClose, shutdown_timeout=0.1)
    env.reset()
    pids = env.worker_pids
    started = time.monotonic()
    env.close()

    assert time.monotonic() - started < 4.5  # it would be 5 by default
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]


@pytest.mark.parametrize("seconds", [0, -1.0])
def test_an_invalid_step_timeout_is_refused_before_the_start(seconds: float) -> None:
    """A step_timeout that is not above 0 is refused before any worker starts."""
    with pytest.raises(ArgumentError, match="step_timeout is a number of seconds above 0"):
        ParallelEnv(2, "gym:CartPole-v1", step_timeout=seconds)
