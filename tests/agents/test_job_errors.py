"""Jobs after errors of environments, policies and workers, and after Ctrl-C."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tensordict import TensorDict, TensorDictBase

from steppe import Collector, SerialEnv, Trajectories
from steppe.errors import WorkerError
from steppe.workers import Pool
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import CountTo, counters, echo, make, told
from tests.core.collectors.worker_policies import all_gone
from tests.limits import AT_ONCE

# -- errors -----------------------------------------------------------------------------------------------------------


class Breaking(CountTo):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        reset: TensorDictBase = super()._reset(tensordict, **kwargs)
        if self.where == "reset" and self.env_id == 3:
            raise ValueError("broken in reset")
        return reset

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.t == 5 and self.env_id == 3:
            if self.where == "step":
                raise ValueError("broken in step")
            if self.where == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        stepped: TensorDictBase = super()._step(tensordict)
        return stepped


def broken(tensordict: TensorDict) -> TensorDict:
    if bool((tensordict["t"] > 4).any()):
        raise ValueError("broken in policy")
    return echo(tensordict)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("asked", ["get", "poll", "result", "update"])
@pytest.mark.parametrize("where", ["step", "kill", "reset", "policy"])
def test_a_worker_error_reaches_every_call(where: str, asked: str) -> None:
    with make(2, lambda: SerialEnv(2, lambda: Breaking(where)), broken if where == "policy" else echo) as collector:
        pids = collector.backend.pool.pids
        job = collector.execute(env_info=told([30] * 4))
        asking = {
            "get": collector.get,
            "poll": lambda: polled_for(collector),
            "result": job.result,
            "update": lambda: updated_for_ever(collector),
        }
        begun = time.monotonic()
        with pytest.raises(WorkerError, match="ended unexpectedly" if where == "kill" else f"broken in {where}"):
            asking[asked]()
        assert time.monotonic() - begun < AT_ONCE
        assert all_gone(pids)
        collector.close()
        with pytest.raises(RuntimeError, match="after an error"):
            collector.update_policy_weights_()


def updated_for_ever(collector: Collector) -> None:
    while True:
        collector.update_policy_weights_()


def polled_for(collector: Collector) -> Trajectories:
    while (found := collector.get(blocking=False)) is None:
        pass
    return found


@pytest.mark.usefixtures("nothing_left")
def test_an_error_of_a_factory_is_raised_at_once() -> None:
    def factory() -> NoReturn:
        raise ValueError("broken in factory")

    with pytest.raises(WorkerError, match="broken in factory"):
        Collector(counters, policy_factory=factory, num_workers=2)
    with pytest.raises(WorkerError, match="broken in factory"):
        Collector(factory, num_workers=2)


def test_an_error_in_this_process_leaves_the_collector_usable() -> None:
    with Collector(lambda: SerialEnv(4, lambda: Breaking("step")), echo) as collector:
        collector.execute(env_info=told([30] * 4))
        with pytest.raises(ValueError, match="broken in step"):
            collector.get()
        collector.execute(env_info=told([2] * 4))
        assert collector.get().length.tolist() == [2] * 4
        job = collector.execute(env_info=told([30] * 4))
        with pytest.raises(ValueError, match="broken in step"):
            job.result()
        assert collector.execute(env_info=told([2] * 4)).result().length.tolist() == [2] * 4


@pytest.mark.parametrize(("workers", "where"), [(0, "step"), (2, "step"), (2, "kill")])
def test_ended_rows_survive_an_error(workers: int, where: str) -> None:
    env = lambda: SerialEnv(2 if workers else 4, lambda: Breaking(where))  # noqa: E731
    with make(workers, env, echo) as collector:
        job = collector.execute(env_info=told([1, 2, 3, 30]))
        with pytest.raises((ValueError, WorkerError)):
            job.result()
        found = job.partial()
        assert found.length.tolist() == [1, 2, 3]
        assert found.steps["env_id"][:, 0].flatten().tolist() == [0, 1, 2]
        assert job.partial() is None


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_ctrl_c_in_a_job_leaves_the_collector_usable(workers: int, tmp_path: Path) -> None:
    file, pid = tmp_path / "go", os.getpid()
    with make(workers, lambda: SerialEnv(1, lambda: Pressing(str(file), pid)), echo) as collector:
        collector.execute(env_info=told([20]))
        with pytest.raises(KeyboardInterrupt):
            let_go_and_get(collector, file)
        if workers:
            assert collector.get().length.tolist() == [20], "its worker has gone on"
        collector.execute(env_info=told([2, 3]))
        assert collector.get().length.tolist() == [2, 3]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_job_may_be_cancelled_after_ctrl_c(workers: int, tmp_path: Path) -> None:
    file, pid = tmp_path / "go", os.getpid()
    with make(workers, lambda: SerialEnv(1, lambda: Pressing(str(file), pid)), echo) as collector:
        job = collector.execute(env_info=told([1_000_000_000]))
        with pytest.raises(KeyboardInterrupt):
            let_go_and_get(collector, file)
        job.cancel()
        assert job.partial() is None
        assert collector.execute(env_info=told([2, 3])).result().length.tolist() == [2, 3]


def test_ctrl_c_right_after_any_message_of_a_job_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    receive, presses = Pool.receive, 0

    def receive_and_press(pool: Pool, worker: int) -> Any:
        nonlocal presses
        told, presses = receive(pool, worker), presses + 1
        signal.raise_signal(signal.SIGINT)
        return told

    with make(2, lambda: SerialEnv(1, CountTo), echo) as collector:
        expected = collector.execute(env_info=told([3, 9, 4, 7])).result()
        job = collector.execute(env_info=told([3, 9, 4, 7]))
        interrupts = 0
        with monkeypatch.context() as patched:
            patched.setattr(Pool, "receive", receive_and_press)
            found = live = None
            while live is None:
                try:
                    found = collector.get() if found is None else found
                    live = collector.n_live  # after the last reports
                except KeyboardInterrupt:
                    interrupts += 1

        assert interrupts == presses >= 2
        assert found.length.tolist() == [3, 9, 4, 7]
        assert_equal_data(found.steps.exclude("collector"), expected.steps.exclude("collector"))
        assert job.progress() == (4, 4)


def let_go_and_get(collector: Collector, file: Path) -> None:
    file.touch()
    collector.get()


class Pressing(CountTo):
    """Presses Ctrl-C for a process in its third step, once, when a file is there."""

    def __init__(self, file: str, pid: int) -> None:
        super().__init__()
        self.file, self.pid = file, pid

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.t == 2 and self.pid:
            while not os.path.exists(self.file):
                os.sched_yield()
            os.remove(self.file)
            self.pid, pid = 0, self.pid
            os.kill(pid, signal.SIGINT)
        stepped: TensorDictBase = super()._step(tensordict)
        return stepped
