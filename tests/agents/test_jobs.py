"""Jobs: running requests, and actions while they run."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch.utils._python_dispatch import TorchDispatchMode

from steppe import (
    Collector,
    SerialEnv,
    Trajectories,
)
from steppe.errors import StateError, WorkerError
from steppe_testing import CountingEnv, assert_equal_data
from tests.core.collectors.counters_and_walks import (
    CountTo,
    counters,
    echo,
    make,
    told,
)
from tests.core.collectors.worker_policies import all_gone
from tests.limits import AT_ONCE

# -- jobs -------------------------------------------------------------------------------------------------------------


class Waiting(CountTo):
    """Cannot pass its tenth step before a file is there."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def _step(self, tensordict: Any) -> Any:
        while self.t >= 9 and not os.path.exists(self.file):
            os.sched_yield()
        return super()._step(tensordict)


def test_a_job_runs_while_the_caller_does_something_else(tmp_path: Any) -> None:
    file = tmp_path / "go"
    with make(2, lambda: SerialEnv(2, lambda: Waiting(str(file))), echo) as collector:
        job = collector.execute(env_info=told([1, 20, 1, 20]))
        assert collector.get(blocking=False) is None
        assert not job.done()
        with pytest.raises(TimeoutError, match="4 rows had ended"):
            collector.get(timeout=0.05)
        for refused in (lambda: collector.execute(n_episodes=1), collector.reexecute):
            with pytest.raises(StateError, match="A job is running"):
                refused()
        file.touch()
        found = collector.get()
        assert found.length.tolist() == [1, 20, 1, 20]
        assert job.progress() == (4, 4)
        collector.execute(env_info=told([2]))
        while (polled := collector.get(blocking=False)) is None:
            pass
        assert polled.length.tolist() == [2]


class LateFirst(CountTo):
    """Cannot take its first step before a file is there, if it is environment 1."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def _step(self, tensordict: Any) -> Any:
        while self.env_id == 1 and not os.path.exists(self.file):
            os.sched_yield()
        return super()._step(tensordict)


def test_workers_wait_only_briefly_for_the_first_step_of_others(tmp_path: Any) -> None:
    file = tmp_path / "go"
    with make(2, lambda: SerialEnv(1, lambda: LateFirst(str(file))), echo) as collector:
        job = collector.execute(env_info=told([3, 5]))
        assert rows_of_part(collector, 1) == [0]
        assert job.progress() == (1, 2)
        file.touch()
        rest = collector.get()
        assert rest.steps["env_id"].flatten().tolist() == [1] * 5
        again = collector.execute(env_info=told([3, 5])).result()
        assert collector.requests.runner.slots is not None
        assert_equal_data(again[1:].steps.exclude("collector"), rest.steps.exclude("collector"))


class Long(CountTo):
    """Episodes of 60 steps or more end when a file is there."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def _step(self, tensordict: Any) -> Any:
        if self.to_go >= 60 and not os.path.exists(self.file):
            self.to_go = max(self.to_go, self.t + 2)
        return super()._step(tensordict)


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_that_have_ended_can_be_had_before_the_others(workers: int, tmp_path: Any) -> None:
    file = tmp_path / "go"
    env = lambda: SerialEnv(2 if workers else 4, lambda: Long(str(file)))  # noqa: E731
    with make(workers, env, echo) as collector:
        job = collector.execute(env_info=told([1, 60, 1, 60]))
        early = rows_of_part(collector, 2)
        assert early == [0, 2]
        assert not job.done()
        assert job.progress() == (2, 4)
        assert collector.get(partial=True) is None, "each row comes once"
        file.touch()
        assert rows_of_part(collector, 2) == [1, 3]
        assert job.done()
        assert job.progress() == (4, 4)
        with pytest.raises(StateError, match="were taken"):
            job.result()


@pytest.mark.parametrize("workers", [0, 2])
def test_two_threads_never_take_the_same_rows(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = []

    def take() -> None:
        try:
            outcomes.append(job.result())
        except StateError as error:
            outcomes.append(error)

    class Between(Trajectories):
        @classmethod
        def cat(cls, parts: Any) -> Any:
            thread = threading.Thread(target=take)
            thread.start()
            thread.join(AT_ONCE)
            return Trajectories.cat(parts)

    with make(workers, counters, echo) as collector:
        job = collector.execute(env_info=told([1, 2, 3, 4]))
        while not job.done():
            pass
        monkeypatch.setattr("steppe_agents.job.Trajectories", Between)
        assert job.result().length.tolist() == [1, 2, 3, 4]
        with pytest.raises(StateError, match="each row once"):
            job.result()

    assert [type(outcome) for outcome in outcomes] == [StateError]


@pytest.mark.parametrize("workers", [0, 2])
def test_ended_rows_survive_a_cancelled_job(workers: int, tmp_path: Any) -> None:
    env = lambda: SerialEnv(2 if workers else 4, lambda: Long(str(tmp_path / "never")))  # noqa: E731
    with make(workers, env, echo) as collector:
        job = collector.execute(env_info=told([1, 60, 1, 60]))
        while job.progress()[0] < 2:
            pass
        job.cancel()
        found = job.partial()
        assert found.row.tolist() == [0, 2]
        assert found.last()["next", "done"].all()
        assert job.partial() is None
        assert collector.execute(env_info=told([2, 3])).result().length.tolist() == [2, 3]


def rows_of_part(collector: Any, n: int) -> list[int]:
    """Poll until so many rows have ended."""
    rows: list[int] = []
    while len(rows) < n:
        part = collector.get(partial=True)
        if part is not None:
            assert part.steps["env_id"][:, 0].flatten().tolist() == part.row.tolist()
            rows += part.row.tolist()
    return sorted(rows)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_job_that_is_cancelled_leaves_the_collector_usable(workers: int) -> None:
    with make(workers, lambda: counters(2), echo) as collector:
        job = collector.execute(env_info=told([1, 1_000_000_000, 1, 1_000_000_000]))
        job.cancel()
        ended = job.partial()
        assert ended is None or ended.length.eq(1).all()
        with pytest.raises(StateError, match="cancelled"):
            job.result()
        collector.execute(env_info=told([2, 3]))
        assert collector.get().length.tolist() == [2, 3]


def test_a_second_request_within_episodes_is_refused() -> None:
    with Collector(lambda: counters(2), echo) as collector:
        collector.reset(env_info=told([5, 5]))
        collector.execute(n_steps=2)
        collector.get()
        with pytest.raises(StateError, match=r"finish\(\) to run .* drop\(\) to discard"):
            collector.execute(env_info=told([1]))
        collector.drop()
        collector.execute(env_info=told([1]))
        assert collector.get().length.tolist() == [1]


@pytest.mark.parametrize("auto_reset", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_finish_completes_running_episodes(workers: int, auto_reset: bool) -> None:
    with make(workers, lambda: counters(2 if workers else 4), echo, auto_reset=auto_reset) as collector:
        assert collector.finish() is None
        collector.reset(env_info=told([5, 3, 9, 4]))
        collector.execute(n_steps=2)
        collector.get()
        rest = collector.finish().result()
        assert rest.length.tolist() == [3, 1, 7, 2]
        assert rest.last()["next", "done"].all()
        assert not rest.alive.any()
        assert collector.n_live == 0
        collector.execute(env_info=told([1]))
        assert collector.get().length.tolist() == [1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slice_that_is_cancelled_forgets_its_lanes(workers: int) -> None:
    with make(workers, lambda: counters(2), echo) as collector:
        collector.reset(env_info=told([1_000_000_000] * collector.n_lanes))
        collector.execute(n_steps=1_000_000_000).cancel()
        assert collector.n_live == 0
        collector.execute(env_info=told([2, 3]))
        assert collector.get().length.tolist() == [2, 3]


def test_max_steps_truncates_a_row() -> None:
    with Collector(lambda: counters(2), echo, max_steps=10) as collector:
        collector.execute(env_info=told([1000, 4]))
        found = collector.get()
        assert found.length.tolist() == [10, 4]
        last = found.last()["next"]
        assert last["truncated"].flatten().tolist() == [True, False]
        assert last["terminated"].flatten().tolist() == [False, True]
        assert last["done"].all()
    with Collector(lambda: counters(2), echo) as collector:
        collector.reset(env_info=told([1000, 1000]))
        collector.execute(n_steps=10)
        found = collector.get()
        assert not found.last()["next", "done"].any()
        assert found.alive.all()


def test_new_weights_apply_from_the_next_job() -> None:
    """Weights that arrive while a job runs are used by all workers in the next job."""
    policy = TensorDictModule(Weighted(), ["t"], ["action", "weight"])
    with make(2, lambda: counters(2), policy) as collector:
        for number in range(3):
            collector.execute(env_info=told([50] * 4))
            policy.module.weight.data.fill_(number + 1)
            collector.update_policy_weights_()
            found = collector.get()
            versions = found.policy_version.unsqueeze(1).expand(4, 50).float()
            assert torch.equal(found.steps["weight"], versions), "what a row says is what it was made with"
            assert versions.eq(number).all(), "a job has the weights of its beginning, in every worker"
        collector.execute(env_info=told([5] * 4))
        assert collector.get().policy_version.eq(3).all()


class Copies(TorchDispatchMode):
    """Counts the tensors that are copied into others."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += func.overloadpacket is torch.ops.aten.copy_
        return func(*args, **(kwargs or {}))


def test_an_update_is_written_once_for_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of an update does not depend on the number of workers: they read one copy, and get no message."""
    copies: list[int] = []
    messages: list[object] = []
    for workers in (1, 4):
        policy = TensorDictModule(Weighted(), ["t"], ["action", "weight"])
        with make(workers, lambda: counters(1), policy) as collector:
            collector.execute(env_info=told([3] * workers))
            collector.get()
            with monkeypatch.context() as patch, Copies() as counted:
                for name in ("send", "order", "rouse"):
                    patch.setattr(collector.backend.pool, name, lambda *message: messages.append(message))
                policy.module.weight.data.fill_(2.5)
                collector.update_policy_weights_()
            copies.append(counted.number)
            assert not messages
            collector.execute(env_info=told([3] * workers))
            assert collector.get().steps["weight"].eq(2.5).all()
    assert copies == [1, 1]


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(len(t), dtype=torch.int64), self.weight.expand(len(t))


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("end", ["close", "twice", "forgotten"])
def test_nothing_is_left_of_a_collector_that_answered_requests(end: str) -> None:
    collector = make(2, lambda: counters(2), echo)
    pids = collector.backend.pool.pids
    assert collector.execute(env_info=told([3] * 6)).result().length.tolist() == [3] * 6
    collector.execute(env_info=told([1_000_000_000] * 4))
    if end != "forgotten":
        collector.close()
    if end == "twice":
        collector.close()
    del collector
    gc.collect()
    assert all_gone(pids)


class Numbered:
    """Writes the number that it was last given."""

    number = 0

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        return echo(tensordict).set("number", torch.full(tensordict.batch_size, self.number))

    def use(self, number: int, *, plus: int = 0) -> int:
        self.number = number + plus
        return self.number


@pytest.mark.parametrize("workers", [0, 2])
def test_call_policy_reaches_each_copy_of_the_policy_once(workers: int) -> None:
    with make(workers, lambda: counters(2), Numbered()) as collector:
        assert collector.call_policy("use", 4, plus=1) == [5] * max(workers, 1)
        found = collector.execute(env_info=told([1, 2, 3, 1])).result()
        assert found.steps["number"][found.mask()].eq(5).all()
        with pytest.raises((AttributeError, WorkerError), match="no_such_method"):
            collector.call_policy("no_such_method")
        assert collector.execute(env_info=told([2])).result().length.tolist() == [2]


def test_a_seed_in_the_middle_of_episodes_begins_others() -> None:
    with make(2, lambda: counters(2), echo) as collector:
        collector.reset(env_info=told([9] * 4))
        collector.execute(n_steps=4)
        collector.get()
        collector.set_seed(3)
        assert collector.n_live == 0
        collector.execute(env_info=told([2] * 4))
        assert collector.get().length.tolist() == [2] * 4


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_and_slices_restart_after_each_other(workers: int) -> None:
    env = lambda: SerialEnv(2, lambda: CountingEnv(100))  # noqa: E731
    with Collector(env, num_workers=workers, frames_per_batch=12, auto_reset=True) as collector:
        for _ in range(2):
            found = collector.execute(n_steps=3).result()
            assert found.steps["observation"][0].flatten().tolist() == [0, 1, 2]
            assert found.steps["next", "observation"][0].flatten().tolist() == [1, 2, 3]
            batch = next(collector)
            assert batch["observation"][0].flatten().tolist() == list(range(batch.shape[-1]))
            assert collector.n_live == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_no_batch_is_collected_while_a_job_runs(workers: int) -> None:
    env = lambda: SerialEnv(2, lambda: CountingEnv(30))  # noqa: E731
    with Collector(env, num_workers=workers, frames_per_batch=12) as collector:
        job = collector.execute(n_episodes=4)
        for refused in (lambda: next(collector), collector.reset):
            with pytest.raises(StateError, match="A job is running"):
                refused()
        assert job.result().length.tolist() == [30] * 4
        assert next(collector)["observation"][0, 0] == 0
