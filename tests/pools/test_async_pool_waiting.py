"""Waiting for results of a pool: duration, selection, interruption."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from steppe import AsyncEnvPool
from steppe.errors import SpecError, StateError, WorkerTimeout
from steppe.workers import Pool
from steppe_testing import ArrayCountingEnv, TextCountingEnv
from tests.core.batched.gates import Gate, HeldEnv
from tests.limits import ANSWER, CHILD
from tools.workspace import ROOT

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_the_others_need_not_wait_for_a_slow_one(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = pool([partial(HeldEnv, gate), ArrayCountingEnv, ArrayCountingEnv])
    env.async_step_send(env.rand_action(env.reset()))

    quick = env.async_step_recv(min_get=2)
    gate.open()
    slow = env.async_step_recv()

    assert quick["env_index"].tolist() == [1, 2]
    assert slow["env_index"].tolist() == [0]


def test_a_result_is_received_by_its_index(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    env.async_step_send(env.rand_action(env.reset()))

    assert env.async_step_recv(min_get=2, env_index=[2, 0])["env_index"].tolist() == [0, 2]
    assert env.async_step_recv(env_index=1)["env_index"].tolist() == [1]


class Waiting(ArrayCountingEnv):
    """An environment that steps when another process writes to a named pipe."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def step_into(self, action: Any, out: Any) -> Any:
        with open(self.path, "rb"):
            return super().step_into(action, out)


def test_at_most_max_get_are_returned_first_sent_first(pool: Any, tmp_path: Any) -> None:
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    env = pool([ArrayCountingEnv] * 3 + [partial(Waiting, path)])
    td = env.rand_action(env.reset())
    for row in (2, 1, 0, 3):
        env.async_step_send(td[row], env_index=row)
    with pytest.raises(SpecError, match="max_get must not be below min_get, found 2 and 3"):
        env.async_step_recv(min_get=3, max_get=2)
    ended = 0
    while ended < 3:
        with pytest.raises(WorkerTimeout) as caught:
            env.async_step_recv(min_get=4, timeout=0.01)
        ended = int(str(caught.value).split(": ")[1].split(" of 4")[0])

    assert env.async_step_recv(max_get=2)["env_index"].tolist() == [1, 2]
    assert env.async_step_recv(max_get=2)["env_index"].tolist() == [0]
    with open(path, "wb"):
        assert env.async_step_recv()["env_index"].tolist() == [3]


def test_a_most_and_a_time_collect_until_one_of_them_is_reached(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())
    env.async_step_send(td)

    # As soon as there are two, though a minute was given.
    assert len(env.async_step_recv(min_get=1, max_get=2, timeout=60.0)) == 2
    # All that are pending: more than that can not come.
    assert len(env.async_step_recv(min_get=1, max_get=2, timeout=60.0)) == 1


def test_a_pool_waits_for_min_get_results_by_default(pool: Any) -> None:
    """If a call does not say how many results it needs, the pool's min_get decides."""
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())
    env.async_step_send(td)
    env.min_get = 3

    assert env.async_step_recv(min_get=None)["env_index"].tolist() == [0, 1, 2]


def test_a_time_limit_loses_nothing(pool: Any, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = pool([ArrayCountingEnv, partial(HeldEnv, gate)])
    env.async_step_send(env.rand_action(env.reset()))

    match = rf"1 of 2 step\(s\) ended within {ANSWER} s; environments \[1\] are"
    with pytest.raises(WorkerTimeout, match=match) as caught:
        env.async_step_recv(min_get=2, timeout=ANSWER)

    assert caught.value.env == 1
    assert env.async_step_recv(timeout=0)["env_index"].tolist() == [0]
    gate.open()
    assert env.async_step_recv(timeout=CHILD)["env_index"].tolist() == [1]


@pytest.mark.parametrize("op", ["step", "reset", "step_and_maybe_reset"])
def test_receiving_what_was_not_sent_is_an_error_and_no_hang(pool: Any, op: str) -> None:
    env = pool([ArrayCountingEnv] * 2)
    env.reset()

    with pytest.raises(StateError, match=f"none is pending.*async_{op}_send"):
        getattr(env, f"async_{op}_recv")()


def test_receiving_from_a_pool_before_its_start_is_an_error(pool: Any) -> None:
    with pytest.raises(StateError, match=r"1 step\(s\) requested, but none is pending\. Send first"):
        pool([ArrayCountingEnv]).async_step_recv()


def test_receiving_more_than_was_sent_is_an_error(pool: Any) -> None:
    env = pool([ArrayCountingEnv] * 3)
    td = env.rand_action(env.reset())
    env.async_step_send(td[0], env_index=0)
    env.async_reset_send(env_index=1)

    with pytest.raises(StateError, match=r"3 step\(s\) requested, but 1 are pending. Environment 1 was sent a reset"):
        env.async_step_recv(min_get=3)
    with pytest.raises(StateError, match=r"of environments \[1, 2\] requested, but none"):
        env.async_step_recv(env_index=[1, 2])
    with pytest.raises(SpecError, match="min_get must be a whole number"):
        env.async_step_recv(min_get=0)

    assert len(env.async_step_recv()) == len(env.async_reset_recv()) == 1


def test_several_threads_have_an_environment_each(pool: Any) -> None:
    env = pool([partial(ArrayCountingEnv, max_steps=1000)] * 4)
    root = env.reset()
    failures: list[BaseException] = []
    counts = {}

    def serve(row: int) -> None:
        try:
            td = root[row].clone()
            for _ in range(50):
                td["action"] = env.full_action_spec_unbatched.rand()["action"]
                env.async_step_and_maybe_reset_send(td, env_index=row)
                td = env.async_step_and_maybe_reset_recv(env_index=row)[1][0]
            counts[row] = td["observation"].item()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=serve, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CHILD)

    assert not failures
    assert counts == dict.fromkeys(range(4), 50.0)


WAITING = """
import os, signal, sys, threading
from pathlib import Path
from steppe import AsyncEnvPool
from tests.core.batched.gates import Gate, HeldEnv
for backend in ("threading", "multiprocessing"):
    folder = Path(sys.argv[1], backend)
    folder.mkdir()
    gate = Gate(folder)
    env = AsyncEnvPool([lambda: HeldEnv(gate)] * 2, backend=backend)
    env.async_step_send(env.rand_action(env.reset()))
    try:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        env.async_step_recv(min_get=2)
    except KeyboardInterrupt:
        print("caught")
    gate.open()
    print(env.async_step_recv(min_get=2)["next", "observation"].tolist())
    env.close()
"""


def test_ctrl_c_ends_a_wait_and_loses_nothing(run_script: Any, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = run_script(WAITING, str(tmp_path), env={**os.environ, "PYTHONPATH": path})
    out, err = process.communicate(timeout=CHILD)

    assert (out, err) == ("caught\n[[1.0], [1.0]]\n" * 2, "")


def test_ctrl_c_right_after_an_answer_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Text has no place in memory that processes share: it comes in messages.
    env = AsyncEnvPool([TextCountingEnv] * 2, backend="multiprocessing")
    root = env.reset()
    receive = Pool.receive

    def receive_and_press(own: Pool, worker: int) -> Any:
        told = receive(own, worker)
        signal.raise_signal(signal.SIGINT)
        return told

    env.async_step_send(env.rand_action(root))
    interrupts = 0
    with monkeypatch.context() as patched:
        patched.setattr(Pool, "receive", receive_and_press)
        while True:
            try:
                found = env.async_step_recv(min_get=2)
                break
            except KeyboardInterrupt:
                interrupts += 1

    assert 1 <= interrupts <= 2  # one if both answers are received in one go
    assert found["env_index"].tolist() == [0, 1]
    env.close()
