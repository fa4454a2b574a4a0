"""Errors of pools are named, and an ended pool leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from steppe import AsyncEnvPool, ProcessorAsyncEnvPool, ThreadingAsyncEnvPool
from steppe.errors import ClosedError, WorkerError, WorkerTimeout
from steppe_testing import ArrayCountingEnv, DyingEnv, FailingEnv, HangingEnv, SlowEnv, TextCountingEnv
from tests.core.batched.gates import Gate, HeldEnv, Thread, wait_for
from tests.limits import ANSWER, AT_ONCE, CHILD
from tests.processes import in_child

pytestmark = pytest.mark.usefixtures("nothing_left")

CARTPOLE = "gym:CartPole-v1"


def failing(**kwargs: Any) -> list[Any]:
    return [ArrayCountingEnv, ArrayCountingEnv, partial(FailingEnv, **kwargs)]


def assert_over(env: Any) -> None:
    for call in (env.reset, env.async_reset_send, env.async_step_recv, partial(env.set_seed, 0)):
        with pytest.raises(ClosedError, match="stopped after an error"):
            call()
    env.close()


@pytest.mark.parametrize("where", ["init", "reset", "step"])
def test_an_exception_names_its_worker_and_environment(pool: Any, where: str) -> None:
    """An exception has its traceback and the numbers of worker and environment."""
    env = pool(failing(in_=where, at=3 if where == "init" else 1))

    def use() -> None:
        env.async_reset_send()
        root = env.async_reset_recv(min_get=3)
        env.async_step_send(env.rand_action(root))
        env.async_step_recv(min_get=3)

    with pytest.raises(WorkerError, match=f"FailingEnv failed in {where}") as caught:
        use()

    assert (caught.value.worker, caught.value.env) == (2, 2)
    assert "mock_faults.py" in caught.value.remote_traceback
    if where != "init":
        assert_over(env)


def test_an_exception_in_a_rollout_ends_the_pool(pool: Any) -> None:
    env = pool(failing())

    with pytest.raises(WorkerError, match="raised in step of environment 2: RuntimeError: FailingEnv failed in step 3"):
        env.rollout(10)

    assert_over(env)


class FailingText(TextCountingEnv):
    """Fails in its second step; its data travels in messages."""

    def _step(self, tensordict: Any) -> Any:
        if int(self.count) == 1:
            raise LookupError("no more text")
        return super()._step(tensordict)


def test_an_exception_among_messages_is_named(pool: Any) -> None:
    env = pool([TextCountingEnv, FailingText])
    td = env.rand_step(env.reset())
    env.async_step_send(env.rand_action(env.step_mdp(td)))

    with pytest.raises(WorkerError, match="raised in step of environment 1: LookupError: no more text"):
        env.async_step_recv(min_get=2)

    assert_over(env)


class Leaving(ArrayCountingEnv):
    """Tries to end its process."""

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        sys.exit("enough")


def test_a_library_that_exits_raises_a_worker_error(pool: Any) -> None:
    env = pool([ArrayCountingEnv, Leaving])
    env.async_step_send(env.rand_action(env.reset()))

    with pytest.raises(WorkerError, match=r"Worker 1 raised in .*: SystemExit: enough"):
        env.async_step_recv(min_get=2)

    assert_over(env)


@pytest.mark.parametrize("factory", [ArrayCountingEnv, TextCountingEnv], ids=str)
@pytest.mark.parametrize("when", ["idle", "sent", "among"])
def test_a_killed_worker_is_named_at_once(when: str, factory: Any) -> None:
    env = ProcessorAsyncEnvPool(
        [factory, factory, partial(HangingEnv, at=1)][: 2 if when != "among" else 3], stack="lazy"
    )
    td = env.rand_action(env.reset())
    pid = env.worker_pids[1]
    started = time.monotonic()
    if when == "among":
        env.async_step_send(td[2], env_index=2)
    os.kill(pid, signal.SIGKILL)

    def use() -> None:
        if when == "sent":
            env.async_step_send(td[1], env_index=1)
            env.async_step_recv()
        elif when == "idle":
            env.async_reset_send()
            env.async_reset_recv(min_get=2)
        else:
            env.async_step_recv()  # of 2, which hangs

    with pytest.raises(WorkerError, match=rf"Worker 1 \(process {pid}\) ended unexpectedly") as caught:
        use()

    assert time.monotonic() - started < AT_ONCE
    assert (caught.value.worker, caught.value.env) == (1, 1)
    assert_over(env)


def test_a_worker_that_dies_in_a_step_is_named() -> None:
    env = ProcessorAsyncEnvPool([ArrayCountingEnv, partial(DyingEnv, at=1)])
    env.async_step_send(env.rand_action(env.reset()))

    with pytest.raises(WorkerError, match=r"Worker 1 .*at work on environment 1"):
        env.async_step_recv(min_get=2)

    assert_over(env)


def test_a_process_that_hangs_is_given_up_after_step_timeout() -> None:
    env = ProcessorAsyncEnvPool([ArrayCountingEnv, partial(HangingEnv, at=1)], step_timeout=ANSWER)
    env.async_step_send(env.rand_action(env.reset()))
    assert env.async_step_recv()["env_index"].tolist() == [0]

    with pytest.raises(WorkerTimeout, match=rf"environment 1, did not answer within {ANSWER} s") as caught:
        env.async_step_recv()

    assert caught.value.env == 1
    assert_over(env)


RELEASE = threading.Event()


class Held(ArrayCountingEnv):
    """Stays in a step until it is let go."""

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        RELEASE.wait(CHILD)
        return super().step_into(action, out)


@pytest.mark.parametrize("way", ["async", "sync"])
def test_a_thread_that_hangs_is_named_and_left_behind(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steppe.batched.base.SHUTDOWN_TIMEOUT", ANSWER)
    monkeypatch.setattr("steppe_pools.async_env_pool.SHUTDOWN_TIMEOUT", ANSWER)
    RELEASE.clear()
    env = ThreadingAsyncEnvPool([ArrayCountingEnv, Held], step_timeout=ANSWER)
    td = env.rand_action(env.reset())

    def use() -> None:
        if way == "sync":
            env.step(td)
        env.async_step_send(td)
        env.async_step_recv(min_get=2)

    with pytest.raises(WorkerTimeout, match="environment 1, did not answer") as caught:
        use()

    assert caught.value.env == 1
    with pytest.warns(RuntimeWarning, match=r"Environments \[1\] did not return"):
        env.close()
    RELEASE.set()  # and its thread ends by itself


def test_closing_in_the_middle_of_steps_leaves_nothing(pool: Any) -> None:
    env = pool([partial(SlowEnv, seconds=0.2, reset_seconds=0)] * 2)
    env.async_step_send(env.rand_action(env.reset()))

    env.close()

    with pytest.raises(ClosedError):
        env.async_step_recv()
    with pytest.raises(ClosedError):
        env.async_reset_send()
    with pytest.raises(ClosedError):
        env.close(raise_if_closed=True)


def test_a_pool_that_was_never_used_closes(pool: Any) -> None:
    pool([ArrayCountingEnv]).close()


def test_a_pool_that_is_forgotten_leaves_nothing(pool: Any) -> None:
    env = AsyncEnvPool([ArrayCountingEnv, CARTPOLE], stack="lazy", backend=type(pool([CARTPOLE])).backend)
    env.async_step_send(env.rand_action(env.reset()))
    del env  # the fixture looks


def test_one_thread_makes_steps_and_closes_each_environment() -> None:
    seen: dict[str, list[int]] = {"made": [], "stepped": [], "closed": []}

    class Where(ArrayCountingEnv):
        def __init__(self) -> None:
            super().__init__()
            seen["made"].append(threading.get_ident())

        def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
            seen["stepped"].append(threading.get_ident())
            return super().step_into(action, out)

        def close(self, *, raise_if_closed: bool = True) -> None:
            seen["closed"].append(threading.get_ident())
            super().close(raise_if_closed=raise_if_closed)

    with ThreadingAsyncEnvPool([Where, Where]) as env:
        env.rand_step(env.reset())

    assert len(set(seen["made"])) == 2
    assert threading.get_ident() not in seen["made"]
    assert set(seen["made"]) == set(seen["stepped"]) == set(seen["closed"])


FORGOTTEN = """
from steppe import AsyncEnvPool
from steppe_testing import ArrayCountingEnv
env = AsyncEnvPool([ArrayCountingEnv] * 2, backend="{backend}")
env.async_step_send(env.rand_action(env.reset()))
print("done")
"""


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_a_script_that_forgets_to_close_ends(run_script: Any, backend: str) -> None:
    out, err = run_script(FORGOTTEN.format(backend=backend)).communicate(timeout=CHILD)

    assert (out, err) == ("done\n", "")


def test_each_environment_of_a_pool_of_processes_has_its_own() -> None:
    with ProcessorAsyncEnvPool([ArrayCountingEnv] * 3) as env:
        assert env.worker_pids == []
        env.start()

        assert len({*env.worker_pids, os.getpid()}) == 4
    assert env.worker_pids == []


@pytest.mark.parametrize("backend", ["threading", "multiprocessing"])
def test_refused_reset_arguments_leave_the_pool_usable(backend: Any) -> None:
    with AsyncEnvPool([ArrayCountingEnv] * 2, backend=backend) as pool:
        with pytest.raises(WorkerError, match="colour"):
            pool.reset(colour="red")

        assert pool.rollout(3).shape == (2, 3)


@pytest.mark.parametrize("kind", [ThreadingAsyncEnvPool, ProcessorAsyncEnvPool])
def test_a_pool_works_after_ctrl_c(kind: Any, interrupt: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with kind([partial(HeldEnv, gate)] * 3) as env:
        td = env.rand_action(env.reset())
        interrupt(gate)
        with pytest.raises(KeyboardInterrupt):
            env.step(td)

        env.async_step_send(env.rand_action(env.reset()))
        assert env.async_step_recv(min_get=3)["next", "observation"].flatten().tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [ThreadingAsyncEnvPool, ProcessorAsyncEnvPool])
@pytest.mark.parametrize("waiting", [1, 2])
def test_close_ends_the_waits_of_threads_that_receive(kind: Any, waiting: int, gate: Gate) -> None:
    env = kind([partial(HeldEnv, gate)] * 3)
    env.async_step_send(env.rand_action(env.reset()))
    threads = [Thread(lambda row=row: env.async_step_recv(env_index=row)) for row in range(waiting)]
    wait_for(gate.reached)
    threading.Timer(0.3, gate.open).start()
    time.sleep(0.1)  # most likely they wait by now
    env.close()

    for thread in threads:
        outcome = thread.result()
        assert isinstance(outcome, ClosedError) or outcome["next", "observation"].item() == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking beside threads
@pytest.mark.parametrize("backend", ["multiprocessing", "threading"])
def test_a_child_sends_nothing_to_a_pool_of_its_parent(backend: str) -> None:
    with AsyncEnvPool([ArrayCountingEnv] * 2, backend=backend) as pool:
        td = pool.rand_action(pool.reset())

        assert in_child(lambda: pool.async_step_send(td)).startswith("StateError: This ")
        pool.async_step_send(td)
        assert in_child(lambda: pool.async_step_recv(min_get=2)).startswith("StateError: This ")
        assert pool.async_step_recv(min_get=2)["next", "observation"].flatten().tolist() == [1, 1]
