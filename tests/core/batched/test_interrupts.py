"""A script that is interrupted or killed: its batch hears of Ctrl-C from nobody else, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steppe import ParallelEnv
from steppe_testing import ArrayCountingEnv
from tests.core.batched.gates import Gate, wait_for
from tests.limits import CHILD

pytestmark = [pytest.mark.programs, pytest.mark.usefixtures("nothing_left")]

SCRIPT = """
import os, signal, sys, threading, time
from steppe import ParallelEnv
from steppe_testing import SlowEnv

def make(n, begin=0.0):
    return ParallelEnv(n, lambda: (time.sleep(begin), SlowEnv(seconds=0.001))[1], num_processes=2)

def interrupt_soon():  # the whole group, as a terminal does: servers and workers too
    threading.Timer(0.3, os.killpg, (os.getpid(), signal.SIGINT)).start()

if "interrupt" in sys.argv:
    env = make(4, begin=0.2)  # two for each of two workers: longer than it takes until the interrupt comes
    try:
        interrupt_soon()
        env.reset()
        time.sleep(60)  # on a machine so busy that the interrupt is late
    except KeyboardInterrupt:
        print("caught while starting", flush=True)
    td = env.reset()
    try:
        interrupt_soon()
        while True:
            _, td = env.step_and_maybe_reset(env.rand_action(td))
    except KeyboardInterrupt:
        print("caught while stepping", flush=True)
    env.close()

env = make(2)
td = env.reset()
print("stepping", flush=True)
while True:
    _, td = env.step_and_maybe_reset(env.rand_action(td))
"""


def test_ctrl_c_is_for_the_script_alone_whenever_it_comes(run_script: Callable[..., Any]) -> None:
    process = run_script(SCRIPT, "interrupt")
    said = [process.stdout.readline().rstrip() for _ in range(3)]
    assert said == ["caught while starting", "caught while stepping", "stepping"]

    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=CHILD)

    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_caller_that_is_killed_takes_its_workers_along(run_script: Callable[..., Any]) -> None:
    process = run_script(SCRIPT)
    assert process.stdout.readline() == "stepping\n"

    process.kill()  # run_script then looks for processes that are left

    assert process.wait(CHILD) == -signal.SIGKILL


def test_an_interrupted_question_is_not_answered_later(tmp_path: Path) -> None:
    gate = Gate(tmp_path)

    class Pondering(ArrayCountingEnv):
        def ponder(self, value: float) -> float:
            gate.stop()
            return value

    env = ParallelEnv(2, Pondering, num_processes=2)
    env.reset()
    main = os.getpid()
    killer = os.fork()
    if killer == 0:
        wait_for(gate.reached)
        os.kill(main, signal.SIGINT)
        os._exit(0)

    with pytest.raises(KeyboardInterrupt):
        env.ponder(0.6)
    os.waitpid(killer, 0)
    gate.open()

    with pytest.raises(AttributeError, match="stopped after an error"):
        env.ponder(0.0)
    env.close()
