"""Interrupted and killed scripts: Ctrl-C reaches batches; nothing is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from steppe import ParallelEnv
from steppe.errors import ClosedError
from steppe_testing import ArrayCountingEnv, TextCountingEnv
from tests.core.batched.gates import Gate, HeldEnv
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


class Ponderous(ArrayCountingEnv):
    """An environment that waits at a gate in ``ponder`` and in resets."""

    def __init__(self, gate: Gate, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate

    def ponder(self, value: float) -> float:
        self.gate.stop()
        return value

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        if seed == 77:
            self.gate.stop()
        return super().set_seed(seed, static_seed)


class HeldTextEnv(TextCountingEnv):
    """Waits at a gate in each step; its data travels in messages."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    def _step(self, tensordict: Any) -> Any:
        self.gate.stop()
        return super()._step(tensordict)


#: What is interrupted: the environment, and the call.
CALLS: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "step": (HeldEnv, lambda env, td: env.step(td)),
    "step of some rows": (HeldEnv, lambda env, td: env.step_at(td[[1]], [1])),
    "step and reset": (HeldEnv, lambda env, td: env.step_and_maybe_reset(td)),
    "step in messages": (HeldTextEnv, lambda env, td: env.step(td)),
    "view": (HeldEnv, lambda env, td: env[2].step(td[[2]])),
    "question": (Ponderous, lambda env, td: env.ponder(0.6)),
    "seed": (Ponderous, lambda env, td: env.set_seed(77)),
}


@pytest.mark.parametrize(("make", "call"), CALLS.values(), ids=CALLS)
def test_a_batch_works_after_ctrl_c(make: Any, call: Callable[[Any, Any], Any], interrupt: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with ParallelEnv(3, partial(make, gate), num_processes=2) as env:
        interrupt(gate)
        td = env.rand_action(env.reset())
        with pytest.raises(KeyboardInterrupt):
            call(env, td)

        root = env.reset()
        assert root["observation"].flatten().tolist() == [0, 0, 0]
        _, root = env.step_and_maybe_reset(env.rand_action(root))
        assert root["observation"].flatten().tolist() == [1, 1, 1]


def test_the_step_that_was_interrupted_has_happened(interrupt: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with ParallelEnv(2, partial(HeldEnv, gate), num_processes=2) as env:
        interrupt(gate)
        td = env.rand_action(env.reset())
        with pytest.raises(KeyboardInterrupt):
            env.step(td)

        assert env.step(td)["next", "observation"].flatten().tolist() == [2, 2]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("call", ["step", "step in messages", "question"])
def test_a_batch_that_cannot_continue_raises(call: str, times: int, interrupt: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    make, use = CALLS[call]
    # Once: nothing comes back in time. Twice: the caller does not wait as long as it might.
    env = ParallelEnv(3, partial(make, gate), num_processes=3, shutdown_timeout=0.5 if times == 1 else CHILD)
    td = env.rand_action(env.reset())
    interrupt(gate, times, opens=False)
    with pytest.raises(KeyboardInterrupt):
        use(env, td)

    with pytest.raises(ClosedError, match=r"ParallelEnv was interrupted, .*: close it, and make a new one"):
        env.reset()
    with pytest.raises(AttributeError, match="was interrupted"):
        env.ponder(0.0)
    env.close()


def test_an_exception_of_a_signal_handler_keeps_the_batch(tmp_path: Path) -> None:
    class Late(Exception):
        pass

    def ring(number: int, frame: Any) -> None:
        gate.open()
        raise Late

    gate = Gate(tmp_path)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with ParallelEnv(2, partial(HeldEnv, gate), num_processes=2) as env:
            td = env.rand_action(env.reset())
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(Late):
                env.step(td)

            assert env.rollout(4, break_when_any_done=False)["observation"][1].flatten().tolist() == [0, 1, 2, 3]
    finally:
        signal.signal(signal.SIGALRM, before)
