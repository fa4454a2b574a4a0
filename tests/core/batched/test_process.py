"""Start methods of workers, and the distribution of environments to processes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.errors import ArgumentError, WorkerError
from steppe_testing import ArrayCountingEnv, CountingEnv, FailingEnv

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]


def data(env: Any) -> Any:
    with env:
        env.set_seed(3)
        return env.rollout(30, break_when_any_done=False)


class Here(ArrayCountingEnv):
    """A class of a module that no other process can import."""


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_workers_do_their_work_however_they_start(method: str) -> None:
    most = 3

    def closure() -> Any:
        # More threads than one were in use in a process that was forked.
        assert float(torch.ones(300, 300).mm(torch.ones(300, 300)).sum()) == 300.0**3
        return CountingEnv(max_steps=most + 1, noise=True)

    factories = [lambda: CountingEnv(max_steps=most, noise=True), closure]
    env = ParallelEnv(2, factories, num_processes=2, mp_start_method=method)
    assert float(torch.ones(300, 300).mm(torch.ones(300, 300)).sum()) == 300.0**3
    env.start()
    pids = env.worker_pids

    assert len({*pids, os.getpid()}) == 3
    assert (data(env) == data(SerialEnv(2, factories))).all()
    with pytest.raises(ChildProcessError):
        os.waitpid(pids[0], os.WNOHANG)  # they were waited for


def test_a_failure_and_a_kill_of_forked_workers_arrive() -> None:
    failing = ParallelEnv(2, [Here, FailingEnv], num_processes=2, mp_start_method="fork")
    killed = ParallelEnv(2, Here, num_processes=1, mp_start_method="fork")

    with pytest.raises(WorkerError, match="FailingEnv failed in step 3") as caught:
        failing.rollout(10, break_when_any_done=False)
    killed.reset()
    os.kill(killed.worker_pids[0], signal.SIGKILL)
    with pytest.raises(WorkerError, match=r"Worker 0 .* ended unexpectedly"):
        killed.reset()

    assert (caught.value.worker, caught.value.env) == (1, 1)
    failing.close()
    killed.close()


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'forkserver', 'spawn', 'fork', found 'thread'"):
        ParallelEnv(2, ArrayCountingEnv, mp_start_method="thread")
