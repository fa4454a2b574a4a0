"""Backends of batches: whether a batch can be used, and the end of an interrupted one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from steppe import ParallelEnv
from steppe.batched.backends.base import Backend
from steppe.errors import ClosedError, StateError, WorkerError
from steppe_testing import ArrayCountingEnv


class Held(Backend):
    """A backend without environments: the interrupts of real ones are tested in test_interrupts."""

    outlives = False
    owner = os.getpid()
    attach = run = call = None  # type: ignore[assignment]

    def stop(self, timeout: float) -> None:
        self.stopped = True


def test_a_backend_that_settles_after_ctrl_c_is_usable() -> None:
    backend = Held()

    backend.stop_unless(lambda: True, grace=0.5)

    backend.check("ParallelEnv")


def unsettled() -> bool:
    return False


def interrupted_again() -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize("settled", [unsettled, interrupted_again])
def test_a_backend_that_does_not_settle_is_stopped(settled: Callable[[], bool]) -> None:
    backend = Held()
    try:
        backend.stop_unless(settled, grace=2.5)
    except KeyboardInterrupt:
        assert settled is interrupted_again

    with pytest.raises(ClosedError, match=r"This ParallelEnv was .*interrupt.*2\.5 s.*: close it, and make a new one"):
        backend.check("ParallelEnv")


def test_a_backend_of_another_process_is_refused() -> None:
    backend = Held()
    backend.owner = os.getppid()

    with pytest.raises(StateError, match=f"This ParallelEnv was started in process {os.getppid()}"):
        backend.check("ParallelEnv")


@pytest.mark.programs
@pytest.mark.usefixtures("nothing_left")
def test_a_batch_is_over_after_its_worker_was_killed() -> None:
    env = ParallelEnv(2, ArrayCountingEnv, num_processes=2)
    env.reset()
    os.kill(env.worker_pids[0], signal.SIGKILL)
    with pytest.raises(WorkerError):
        env.reset()

    with pytest.raises(ClosedError, match="stopped after an error"):
        env.rollout(3)
    env.close()
    with pytest.raises(ClosedError):
        env.reset()
