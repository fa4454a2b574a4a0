"""Ways to start workers, and who steps what."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.errors import SpecError, WorkerError
from steppe_testing import ArrayCountingEnv, CountingEnv, FailingEnv


@pytest.mark.parametrize("method", ["forkserver", "spawn", "fork"])
def test_lambdas_reach_workers_however_they_start(method: str) -> None:
    most = 3
    with ParallelEnv(2, lambda: ArrayCountingEnv(max_steps=most), num_processes=2, mp_start_method=method) as env:
        assert env.rollout(10).shape == (2, 3)
        pids = env.worker_pids

    assert len(set(pids) - {os.getpid()}) == 2


def test_an_unknown_start_method_is_refused() -> None:
    with pytest.raises(SpecError, match="'forkserver', 'spawn', 'fork', found 'thread'"):
        ParallelEnv(2, ArrayCountingEnv, mp_start_method="thread")


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_started_children_are_waited_for(method: str) -> None:
    env = ParallelEnv(2, ArrayCountingEnv, num_processes=1, mp_start_method=method)
    env.reset()
    (pid,) = env.worker_pids

    env.close()

    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_a_share_of_the_caller_gives_the_same_data(make: Any) -> None:
    def data(env: Any) -> Any:
        with env:
            env.set_seed(3)
            return env.rollout(30, break_when_any_done=False)

    shared = data(ParallelEnv(5, lambda: make(max_steps=4), num_processes=2, caller_share=True))

    assert (shared == data(SerialEnv(5, lambda: make(max_steps=4)))).all()


def test_an_exception_in_the_callers_share_names_the_environment() -> None:
    env = ParallelEnv(2, [FailingEnv, ArrayCountingEnv], num_processes=2, caller_share=True)

    with pytest.raises(WorkerError, match="caller's share raised in step of environment 0") as caught:
        env.rollout(10)

    assert caught.value.env == 0
    assert isinstance(caught.value.__cause__, RuntimeError)
    env.close()


def test_the_main_script_is_not_run_again(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('script runs')\n"
        "from steppe import ParallelEnv\n"
        "from steppe_testing import ArrayCountingEnv\n"
        "class Mine(ArrayCountingEnv): pass\n"
        "env = ParallelEnv(2, lambda: Mine(max_steps=3), num_processes=2)\n"
        "print(tuple(env.rollout(5).shape))\n"
    )

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=50)

    assert done.stdout.split("\n") == ["script runs", "(2, 3)", ""]
    assert done.stderr == ""


def test_num_threads_is_what_torch_uses_while_workers_run() -> None:
    before = torch.get_num_threads()
    try:
        with ParallelEnv(2, ArrayCountingEnv, num_processes=1, num_threads=1) as env:
            env.reset()
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
