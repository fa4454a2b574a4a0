"""Every call gives the same over workers as in this process, at any moment of a job.

The rows of workers reach the caller through shared memory, before the last reports of the workers do.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steppe import Collector, SerialEnv
from steppe.errors import StateError, WorkerError
from tests.agents.test_job_errors import Breaking
from tests.core.collectors.counters_and_walks import CountTo, counters, echo, make, told
from tests.core.collectors.worker_policies import all_gone
from tests.limits import AT_ONCE, CHILD


class Held(CountTo):
    """One environment waits before its step number ``at`` while a file is there."""

    def __init__(self, file: Path, env_id: int = 1, at: int = 2, error: bool = False) -> None:
        super().__init__()
        self.file, self.held, self.at, self.error = file, env_id, at, error

    def _step(self, tensordict: Any) -> Any:
        if self.env_id == self.held and self.t == self.at:
            while self.file.exists():
                time.sleep(0.001)
            if self.error:
                raise ValueError("broken")
        return super()._step(tensordict)


class SlowSecond(Held):
    """The second step of environment 0 takes a moment."""

    def _step(self, tensordict: Any) -> Any:
        if self.env_id == 0 and self.t == 1:
            time.sleep(0.2)
        return super()._step(tensordict)


def ready(n: int = 2, make_env: Callable[[], Any] = counters, **kwargs: Any) -> Any:
    """Return a collector of workers that have slots."""
    collector = make(n, make_env, echo, **kwargs)
    collector.execute(env_info=told([1] * n)).result()
    assert collector.requests.runner.slots is not None
    return collector


def ends_without_reports(collector: Any, job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until all rows are in shared memory, and receive no report."""
    with monkeypatch.context() as patched:
        patched.setattr(collector.backend, "hear", lambda timeout: None)
        while not job.done():
            pass


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + AT_ONCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    assert condition()


# -- rows have ended, reports are missing -----------------------------------------------------------------------------


def test_rows_are_returned_without_the_last_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    with ready() as collector:
        job = collector.execute(env_info=told([3, 4]))
        monkeypatch.setattr(collector.backend, "hear", lambda timeout: None)
        while not job.done():
            pass
        assert collector.get(timeout=0.0).length.tolist() == [3, 4]
        monkeypatch.undo()
        assert collector.execute(env_info=told([2, 1])).result().length.tolist() == [2, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda collector: collector.get_attr("to_go"),
        lambda collector: collector.set_attr("to_go", 3),
        lambda collector: collector.set_seed(3),
        lambda collector: collector.seed_policy(3),
        lambda collector: collector.load_state_dict(collector.state_dict()),
        lambda collector: collector.update_policy_weights_(),
        next,
    ],
    ids=["get_attr", "set_attr", "set_seed", "seed_policy", "state_dict", "update", "next"],
)
def test_other_calls_are_allowed_once_all_rows_have_ended(
    call: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ready(frames_per_batch=8) as collector:
        job = collector.execute(env_info=told([3, 4]))
        ends_without_reports(collector, job, monkeypatch)
        call(collector)
        assert job.result().length.tolist() == [3, 4]


@pytest.mark.parametrize(("lengths", "live"), [([5, 5, 7, 9], 2), ([4, 4, 5, 6], 0)])
def test_live_lanes_are_counted_once_a_slice_has_ended(
    lengths: list[int], live: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(2, lambda: counters(2), echo) as collector:
        collector.reset(env_info=told(lengths))
        collector.execute(n_steps=3).result()
        ends_without_reports(collector, collector.execute(n_steps=3), monkeypatch)
        assert collector.n_live == live
        again = collector.reexecute()
        assert (0 if again is None else len(again.result())) == live


def test_a_job_is_not_late_because_the_caller_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with ready(batch_timeout=0.3) as collector:
        job = collector.execute(env_info=told([3, 4]))
        ends_without_reports(collector, job, monkeypatch)
        wait_for(lambda: all(collector.backend.pool.has_message(worker) for worker in range(2)))
        time.sleep(0.5)  # longer than batch_timeout
        assert job.progress() == (2, 2)
        assert collector.execute(env_info=told([2, 1])).result().length.tolist() == [2, 1]


def test_a_worker_that_waits_for_first_steps_is_not_late(tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    with make(2, lambda: SerialEnv(1, lambda: SlowSecond(file, at=0)), echo, batch_timeout=1.0) as collector:
        job = collector.execute(env_info=told([3, 5]))
        runner = collector.requests.runner
        while not runner._firsts:
            job.done()
        job.done()  # notes the time of its step
        time.sleep(0.5)
        file.unlink()
        wait_for(lambda: collector.backend.pool.has_message(1))
        time.sleep(0.7)  # worker 0 has taken no step for longer than batch_timeout, because it waits for the caller
        assert job.result().length.tolist() == [3, 5]


def test_rows_survive_a_worker_that_dies_before_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    with ready() as collector:
        job = collector.execute(env_info=told([3, 4]))
        ends_without_reports(collector, job, monkeypatch)
        os.kill(collector.backend.pool.pids[1], signal.SIGKILL)
        assert job.progress() == (2, 2)
        assert job.result().length.tolist() == [3, 4]


# -- cancelled and abandoned jobs -------------------------------------------------------------------------------------


def test_ctrl_c_in_cancel_leaves_a_cancelled_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "held"
    with ready(make_env=lambda: SerialEnv(2, lambda: Held(file))) as collector:
        file.touch()
        job = collector.execute(env_info=told([3, 40, 3, 3]))
        wait_for(lambda: job.progress()[0] == 2)

        def press(timeout: float | None) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(collector.backend, "hear", press)
            with pytest.raises(KeyboardInterrupt):
                job.cancel()
        file.unlink()
        with pytest.raises(StateError, match="was cancelled"):
            job.result()
        assert job.partial().row.tolist() == [2, 3]
        assert collector.execute(env_info=told([2, 1])).result().length.tolist() == [2, 1]


def test_another_thread_cannot_cancel_a_job_that_is_waited_for(tmp_path: Path) -> None:
    file, errors = tmp_path / "held", []
    with ready(make_env=lambda: SerialEnv(2, lambda: Held(file))) as collector:
        file.touch()
        job = collector.execute(env_info=told([3, 40, 3, 3]))

        def cancel() -> None:
            wait_for(lambda: collector.in_use.thread is not None)
            try:
                job.cancel()
            except StateError as error:
                errors.append(error)
            file.unlink()

        thread = threading.Thread(target=cancel)
        thread.start()
        assert job.result().length.tolist() == [3, 40, 3, 3]
        thread.join(timeout=CHILD)
        assert len(errors) == 1


def test_a_request_waits_for_a_job_that_ctrl_c_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "held"
    with ready(1, lambda: SerialEnv(1, lambda: Held(file, env_id=0, at=3))) as collector:
        start = collector.backend._start

        def press(*arguments: Any) -> None:
            start(*arguments)
            raise KeyboardInterrupt

        file.touch()
        with monkeypatch.context() as patched:
            patched.setattr(collector.backend, "_start", press)
            with pytest.raises(KeyboardInterrupt):
                collector.execute(env_info=told([20, 20, 5]))
        collector.update_policy_weights_()
        threading.Timer(1.5, file.unlink).start()  # later than cancel() waits
        again = collector.reexecute().result()
        assert again.length.tolist() == [20, 20, 5]
        assert again.policy_version.tolist() == [1] * 3
        assert len(collector.get_attr("to_go")) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_seed_is_refused_while_a_job_runs(workers: int) -> None:
    with make(workers, lambda: SerialEnv(2, CountTo), echo) as collector:
        job = collector.execute(env_info=told([3000, 3000]))
        with pytest.raises(StateError, match="A job is running"):
            collector.set_seed(1)
        assert job.result().length.tolist() == [3000, 3000]


@pytest.mark.parametrize("workers", [0, 2])
def test_episodes_are_not_repeated_within_a_slice(workers: int) -> None:
    with make(workers, lambda: counters(2), echo) as collector:
        collector.execute(env_info=told([3])).result()
        collector.reset(env_info=told([9] * collector.n_lanes))
        with pytest.raises(StateError, match="lanes are in the middle of episodes"):
            collector.reexecute()
        assert collector.execute(n_steps=2).result().length.tolist() == [2] * collector.n_lanes


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("broken", [0, 1])
def test_rows_in_messages_survive_the_error_of_any_worker(broken: int, tmp_path: Path) -> None:
    file = tmp_path / "held"
    file.touch()
    env = lambda: SerialEnv(1, lambda: Held(file, env_id=broken, error=True))  # noqa: E731
    with make(3, env, echo) as collector:  # two rows for three workers travel in messages
        job = collector.execute(env_info=told([9, 4] if broken == 0 else [4, 9]))
        wait_for(lambda: collector.backend.pool.has_message(2 if broken == 0 else 1))
        file.unlink()
        wait_for(lambda: all(collector.backend.pool.has_message(worker) for worker in (1, 2)))
        with pytest.raises(WorkerError, match="broken"):
            job.result()
        assert job.partial().length.tolist() == [4]


@pytest.mark.parametrize("workers", [0, 2])
def test_get_with_partial_returns_ended_rows_after_an_error(workers: int) -> None:
    env = lambda: SerialEnv(2 if workers else 4, lambda: Breaking("step"))  # noqa: E731
    with make(workers, env, echo) as collector:
        collector.execute(env_info=told([1, 2, 3, 30]))
        with pytest.raises((ValueError, WorkerError)):
            collector.get()
        assert collector.get(partial=True).length.tolist() == [1, 2, 3]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("killed", [0, 1])
def test_all_workers_stop_if_an_idle_one_was_killed(killed: int) -> None:
    with ready() as collector:
        pids = collector.backend.pool.pids
        os.kill(pids[killed], signal.SIGKILL)
        wait_for(lambda: collector.backend.pool.has_message(killed))
        for _ in range(2):
            with pytest.raises(WorkerError, match="ended unexpectedly"):
                collector.execute(env_info=told([2, 2])).result()
        assert all_gone(pids)
        with pytest.raises(WorkerError, match="after an error"):
            collector.update_policy_weights_()


def test_few_rows_advance_without_the_caller() -> None:
    """There are fewer rows than workers, so that no first step decides about slots."""
    with Collector(lambda: counters(1), echo, num_workers=3) as collector:
        job = collector.execute(env_info=told([3, 4]))
        wait_for(lambda: all(collector.backend.pool.has_message(worker) for worker in (1, 2)))
        assert job.progress() == (2, 2)
