"""Rules of jobs: the weights, the errors and the time limits of a running request."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe import Collector, Composite, EnvBase, SerialEnv, Unbounded
from steppe.errors import ClosedError, InfoError, NotSupported, SpecError, StateError, WorkerError, WorkerTimeout
from tests.agents.test_job_errors import Breaking
from tests.agents.test_jobs import Long, Weighted
from tests.core.collectors.counters_and_walks import CountTo, UniformAgent, counters, echo, make, told
from tests.core.collectors.worker_policies import all_gone
from tests.limits import AT_ONCE


def weighted(value: float) -> TensorDictModule:
    policy = TensorDictModule(Weighted(), ["t"], ["action", "weight"])
    policy.module.weight.data.fill_(value)
    return policy


class Scaled:
    """A policy with an attribute and a numpy array, which are no parameters."""

    def __init__(self) -> None:
        self.scale, self.offset = 2.0, torch.tensor(5.0)

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        tensordict.set("scale", torch.full((len(tensordict),), self.scale))
        tensordict.set("offset", self.offset.expand(len(tensordict)).clone())
        return echo(tensordict)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("polled", [False, True])
def test_a_job_acts_with_the_weights_of_its_start(workers: int, polled: bool) -> None:
    policy = weighted(0.25)
    loss = policy.module.weight * policy.module.weight
    with make(workers, lambda: counters(2), policy) as collector:
        collector.update_policy_weights_()
        job = collector.execute(env_info=told([40, 700, 300]))
        if polled:
            job.done()
        with torch.no_grad():
            policy.module.weight.add_(6.5)
        collector.update_policy_weights_()
        found = collector.get()
        assert found.steps["weight"][found.mask()].eq(0.25).all()
        assert found.policy_version.tolist() == [1, 1, 1]
        assert policy.module.weight.item() == 6.75, "the caller's weights are untouched"
        after = collector.execute(env_info=told([4, 5])).result()
        assert after.steps["weight"][after.mask()].eq(6.75).all()
        assert after.policy_version.tolist() == [2, 2]
    if not polled:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()  # the caller's own update, not the job, has changed the weight


@pytest.mark.parametrize("write", ["data", "assign", "numpy"])
def test_weights_may_be_written_around_autograd(write: str) -> None:
    """``tensor.data.copy_`` and arrays change weights without a new version of the tensor."""
    policy = weighted(0.5)
    weight = policy.module.weight
    with Collector(lambda: counters(2), policy) as collector:
        job = collector.execute(env_info=told([900, 30, 700]))
        for value in (7.5, 8.5):
            job.done()
            if write == "data":
                weight.data.fill_(value)
            elif write == "assign":
                weight.data = torch.full_like(weight.data, value)
            else:
                weight.detach().numpy()[...] = value
        found = job.result()
        assert found.steps["weight"][found.mask()].eq(0.5).all()
        assert weight.item() == 8.5
        after = collector.execute(env_info=told([4])).result()
        assert after.steps["weight"][after.mask()].eq(8.5).all()


def test_a_job_keeps_what_its_policy_counts() -> None:
    """A buffer that the policy writes belongs to the caller's module, unless the caller has written it too."""

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, t: torch.Tensor) -> Any:
            self.calls += 1
            return torch.zeros(len(t), dtype=torch.int64), self.calls.expand(len(t)).clone()

    policy = TensorDictModule(Counter(), ["t"], ["action", "calls"])
    with Collector(lambda: counters(1), policy) as collector:
        job = collector.execute(env_info=told([600]))
        while not job.done():
            pass
        assert job.result().steps["calls"][0].tolist() == list(range(1, 601))
        assert policy.module.calls.item() == 600
        job = collector.execute(env_info=told([600]))
        job.done()
        policy.module.calls.fill_(5000.0)
        assert job.result().steps["calls"][0].tolist() == list(range(601, 1201))
        assert policy.module.calls.item() == 5000


def test_a_job_leaves_the_graph_of_a_loss_intact() -> None:
    policy = weighted(3.0)
    with Collector(lambda: counters(2), policy) as collector:
        job = collector.execute(env_info=told([2000, 9]))
        job.done()
        policy.module.weight.data = torch.tensor(8.0)
        loss = policy.module.weight**2
        found = job.result()
        loss.backward()
    assert found.steps["weight"][found.mask()].eq(3.0).all()
    assert policy.module.weight.grad == 16.0


@pytest.mark.parametrize("workers", [0, 2])
def test_attributes_of_an_update_wait_for_the_next_job(workers: int) -> None:
    policy = Scaled()
    with make(workers, lambda: counters(2), policy) as collector:
        collector.execute(env_info=told([6, 3, 8]))
        policy.offset.fill_(9.0)
        collector.update_policy_weights_(attributes={"scale": 7.0})
        found = collector.get()
        assert found.steps["scale"][found.mask()].eq(2.0).all()
        assert found.steps["offset"][found.mask()].eq(5.0).all()
        after = collector.execute(env_info=told([6, 3, 8])).result()
        assert after.steps["scale"][after.mask()].eq(7.0).all()
        assert after.steps["offset"][after.mask()].eq(9.0).all()
    assert policy.scale == 7.0
    assert policy.offset == 9.0


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_trajectory_numbers_are_unique_over_workers(workers: int) -> None:
    with make(workers, lambda: counters(2), echo) as collector:
        for _ in range(2):
            found = collector.execute(env_info=told([4, 2, 6, 1, 3, 5, 2, 2, 9, 3, 1])).result()
            numbers = found.as_steps()["collector", "traj_ids"][:, 0].tolist()
            assert len(set(numbers)) == 11
            assert found.episode.tolist() == numbers


# -- slow and stuck environments --------------------------------------------------------------------------------------


class Held(CountTo):
    """Does not pass its third step while a file exists, if it is to take 50 steps."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file

    def _step(self, tensordict: Any) -> Any:
        while self.to_go == 50 and self.t == 3 and os.path.exists(self.file):
            time.sleep(0.002)
        return super()._step(tensordict)


@pytest.mark.parametrize("warm", [False, True])
def test_ended_rows_come_while_another_row_is_in_a_slow_step(warm: bool, tmp_path: Any) -> None:
    file = tmp_path / "held"
    with Collector(lambda: SerialEnv(3, lambda: Held(str(file))), echo, num_workers=1) as collector:
        if warm:
            collector.execute(env_info=told([2, 2, 2])).result()
        file.touch()
        job = collector.execute(env_info=told([3, 50, 2, 1, 4]))
        early, progress, begun = [], [0], time.monotonic()
        while len(early) < 3:
            part = collector.get(partial=True)
            early += [] if part is None else part.row.tolist()
            progress.append(job.progress()[0])
            assert time.monotonic() - begun < AT_ONCE
        assert sorted(early) == [0, 2, 3]
        assert progress == sorted(progress)
        file.unlink()
        rest = collector.get()
        assert rest.row.tolist() == [1, 4]
        assert rest.length.tolist() == [50, 4]


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("warm", [False, True])
def test_batch_timeout_limits_the_steps_of_a_request(warm: bool, tmp_path: Any) -> None:
    file = tmp_path / "held"
    with Collector(lambda: SerialEnv(2, lambda: Held(str(file))), echo, num_workers=2, batch_timeout=0.4) as collector:
        pids = collector.backend.pool.pids
        if warm:
            collector.execute(env_info=told([2] * 4)).result()
        file.touch()
        job = collector.execute(env_info=told([50, 2, 2, 3, 1]))
        with pytest.raises(TimeoutError, match="rows had ended"):
            collector.get(timeout=0.05)
        with pytest.raises(WorkerTimeout, match=r"Worker 0 has taken no step of the request within batch_timeout=0.4"):
            collector.get()
        assert all_gone(pids)
        for call in (job.result, lambda: collector.execute(n_episodes=2), collector.reexecute):
            with pytest.raises(WorkerTimeout, match=r"stopped after an error: make a new one. The error: Worker 0"):
                call()


def test_a_stuck_step_does_not_hold_up_cancel(tmp_path: Any) -> None:
    file = tmp_path / "held"
    with Collector(lambda: SerialEnv(2, lambda: Held(str(file))), echo, num_workers=2) as collector:
        collector.execute(env_info=told([2] * 4)).result()
        file.touch()
        job = collector.execute(env_info=told([2, 50, 3, 1]))
        while job.progress()[0] < 3:
            pass
        begun = time.monotonic()
        job.cancel()
        assert time.monotonic() - begun < AT_ONCE
        assert job.partial().row.tolist() == [0, 2, 3]
        file.unlink()
        assert collector.execute(env_info=told([4, 1])).result().length.tolist() == [4, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_calls_after_shutdown_raise_closed_error(workers: int) -> None:
    collector = make(workers, lambda: counters(2), echo)
    done = collector.execute(env_info=told([3, 4]))
    while not done.done():
        pass
    assert done.progress() == (2, 2)
    collector.shutdown()
    assert done.result().length.tolist() == [3, 4], "rows that were received need no worker"
    calls = [lambda: collector.execute(n_episodes=3), collector.reexecute, collector.finish, collector.drop]
    for call in (*calls, collector.reset, lambda: collector.execute(n_steps=2)):
        with pytest.raises(ClosedError, match=r"shut down|stopped by shutdown\(\)"):
            call()


@pytest.mark.parametrize("end", ["shutdown", "cancel"])
def test_rows_are_kept_before_the_last_reports(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(2, lambda: counters(2), echo) as collector:
        collector.execute(env_info=told([1, 2])).result()
        job = collector.execute(env_info=told([3, 4]))
        with monkeypatch.context() as patched:  # rows are in shared memory before reports are sent
            patched.setattr(collector.backend, "hear", lambda timeout: None)
            while not job.done():
                pass
        job.cancel() if end == "cancel" else collector.shutdown()
        assert job.progress() == (2, 2)
        assert job.result().length.tolist() == [3, 4]
        if end == "cancel":
            assert collector.execute(env_info=told([2, 1])).result().length.tolist() == [2, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_running_job_raises_after_its_collector_closes(workers: int) -> None:
    collector = make(workers, lambda: SerialEnv(2, lambda: Long("/nowhere")), echo)
    job = collector.execute(env_info=told([60, 61]))
    collector.shutdown()
    for call in (job.result, job.done, job.progress, collector.get):
        with pytest.raises(ClosedError):
            call()


def test_calls_after_the_error_of_a_worker_name_that_error() -> None:
    collector = make(2, lambda: SerialEnv(2, lambda: Breaking("step")), echo)
    job = collector.execute(env_info=told([30] * 4))
    with pytest.raises(WorkerError, match="broken in step"):
        collector.get()
    calls = [job.result, lambda: collector.execute(n_episodes=3), collector.reexecute, collector.finish, collector.drop]
    for call in (*calls, collector.reset, collector.update_policy_weights_, lambda: collector.call_policy("x")):
        with pytest.raises(WorkerError, match=r"stopped after an error: make a new one.*broken in step") as caught:
            call()
        assert caught.value.worker == 1
    for blocking in (False, True):  # a loop that polls must not wait for ever
        with pytest.raises(WorkerError, match="broken in step"):
            collector.get(blocking=blocking)
    collector.shutdown()


# -- resets, infos ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("used", [False, True])
def test_reset_reaches_the_lanes_of_slices(workers: int, used: bool) -> None:
    lanes = 2 if workers else 4
    with make(workers, lambda: counters(lanes), UniformAgent(), frames_per_batch=8) as collector:
        if used:
            collector.execute(env_info=told([2, 2])).result()
        collector.reset(agent_info={"agent_id": [7, 5, 3, 1]}, env_info=told([6, 2, 8, 1]))
        found = collector.execute(n_steps=5).result()
        assert found.length.tolist() == [5, 2, 5, 1]
        assert found.agent_info["agent_id"].tolist() == [7, 5, 3, 1]
        assert found.env_info["length"].tolist() == [6, 2, 8, 1]
        assert collector.n_live == 2
        collector.reset(env_info=told([3, 4, 1, 2]))
        assert collector.n_live == 4
        assert collector.execute(n_steps=9).result().length.tolist() == [3, 4, 1, 2]
        with pytest.raises(SpecError, match="env_info has 3 rows, but there are 4 lanes"):
            collector.reset(env_info=told([3, 4, 1]))


@pytest.mark.parametrize("workers", [0, 2])
def test_reset_takes_the_infos_of_an_agent_without_default(workers: int) -> None:
    class Numbered(UniformAgent):
        agent_info_default = None

    lanes = 2 if workers else 4
    with make(workers, lambda: counters(lanes), Numbered(), frames_per_batch=8) as collector:
        for numbers in ([4, 9, 6, 2], [3, 3, 8, 5]):
            collector.reset(agent_info={"agent_id": numbers}, env_info=told([5, 2, 7, 3]))
            found = collector.execute(n_steps=4).result()
            assert found.length.tolist() == [4, 2, 4, 3]
            assert found.steps["agent_id"][:, 0].flatten().tolist() == numbers
        with pytest.raises(InfoError, match="The reset needs agent_info"):
            collector.reset(env_info=told([5, 2, 7, 3]))
        with pytest.raises((InfoError, WorkerError), match="Iterating needs agent_info"):
            next(collector)


def test_infos_of_an_earlier_reset_hold_in_slices() -> None:
    with Collector(lambda: counters(3), echo, frames_per_batch=6) as collector:
        collector.reset(env_info=told([4, 9, 5]))
        assert collector.execute(n_steps=7).result().length.tolist() == [4, 7, 5]


def test_a_nested_env_info_is_refused_by_name() -> None:
    class Nested(CountTo):
        def __init__(self) -> None:
            super().__init__()
            self.env_info_spec = Composite(task=Composite(length=Unbounded((), dtype=torch.int64)))

    with Collector(lambda: SerialEnv(2, Nested), echo) as collector:
        for infos in ({"task": {"length": [3, 5, 2]}}, TensorDict({"task": {"length": torch.tensor([3, 1])}}, [2])):
            with pytest.raises(SpecError, match=r"env_info is flat.* nests \['task'\]"):
                collector.execute(env_info=infos)
        with pytest.raises(SpecError, match=r"env_info is flat.* nests 'task'"):
            collector.env.reset(env_info=TensorDict({"task": {"length": torch.tensor([3, 1])}}, [2]))
    with Collector(lambda: counters(2), echo) as collector:
        with pytest.raises(InfoError, match=r"found .*'task', 'length'"):
            collector.execute(env_info={"task": {"length": [3, 5]}, "env_id": [9, 8]})
        with pytest.raises(SpecError, match=r"2 rows in one entry and 3 rows in 'env_id'"):
            collector.execute(env_info={"length": [3, 5], "env_id": [9, 8, 7]})
        with pytest.raises(SpecError, match="'length' must be numbers, found 'long'"):
            collector.execute(env_info={"length": "long", "env_id": [9]})


class Deep(UniformAgent):
    """An agent with a nested info."""

    agent_info_spec = Composite(task=Composite(goal=Unbounded((2,))), agent_id=Unbounded((), dtype=torch.int64))
    agent_info_default = {"task": {"goal": [1.0, 2.0]}, "agent_id": 4}


def test_a_nested_agent_info_may_be_a_dict() -> None:
    with Collector(lambda: counters(2), Deep()) as collector:
        goals = torch.rand(3, 2)
        collector.execute(agent_info={"task": {"goal": goals}, "agent_id": [5, 6, 7]}, env_info=told([2, 4, 3]))
        found = collector.get()
        assert torch.equal(found.agent_info["task", "goal"], goals)
        collector.execute(env_info=told([2, 4]))
        assert collector.get().agent_info["task", "goal"].tolist() == [[1.0, 2.0]] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_dicts_may_hold_a_table_of_infos(workers: int) -> None:
    with make(workers, lambda: counters(2), UniformAgent()) as collector:
        collector.execute(
            agent_info={"agent_id": torch.tensor([[4], [6]])},
            env_info={"length": torch.tensor([[3, 1, 5]]), "env_id": torch.tensor([[10, 20, 30]])},
        )
        found = collector.get()
    assert found.batch_size == (2, 3)
    assert found.length.tolist() == [[3, 1, 5]] * 2
    assert found.agent_info["agent_id"].tolist() == [[4] * 3, [6] * 3]


def growing(tensordict: TensorDict) -> TensorDict:
    width = 4 if bool((tensordict["t"] > 2).any()) else 2
    return echo(tensordict).set("notes", torch.zeros(len(tensordict), width))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_entry_whose_shape_changes_is_named(workers: int) -> None:
    with make(workers, lambda: counters(2), growing) as collector:
        collector.execute(env_info=told([6, 7]))
        with pytest.raises((SpecError, WorkerError), match=r"'notes' has shape \(4,\).* \(2,\)"):
            collector.get()


def test_get_after_result_says_that_the_rows_were_returned() -> None:
    with Collector(lambda: counters(2), echo) as collector:
        job = collector.execute(env_info=told([3, 1, 2]))
        assert job.result().length.tolist() == [3, 1, 2]
        with pytest.raises(StateError, match=r"get\(\), result\(\) and partial\(\) return each row once"):
            collector.get()
        assert collector.get() is None


def test_a_job_in_this_process_that_failed_says_why() -> None:
    with Collector(lambda: SerialEnv(4, lambda: Breaking("step")), echo) as collector:
        job = collector.execute(env_info=told([20] * 4))
        with pytest.raises(ValueError, match="broken in step"):
            job.result()
        with pytest.raises(StateError, match=r"ended with an error.*broken in step"):
            job.result()


# -- batches that step or reset as a whole ----------------------------------------------------------------------------


class Whole(EnvBase):
    """A batch of counters that steps only as a whole. ``resets`` says whether it resets single rows."""

    def __init__(self, lengths: list[int], resets: bool) -> None:
        n = len(lengths)
        super().__init__(batch_size=(n,))
        self.observation_spec = Composite(t=Unbounded((n, 1), dtype=torch.int64), shape=(n,))
        self.action_spec = Unbounded((n,), dtype=torch.int64)
        self.reward_spec = Unbounded((n, 1))
        self.lengths, self.resets = torch.tensor(lengths).unsqueeze(-1), resets
        self.t = torch.zeros(n, 1, dtype=torch.int64)

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is not None and not self.resets and not bool(mask.all()):
            raise NotSupported("all rows are reset together")
        self.t = torch.zeros_like(self.t) if mask is None else torch.where(mask, 0, self.t)
        return TensorDict({"t": self.t.clone()}, self.batch_size)

    def _step(self, tensordict: Any) -> Any:
        if tensordict.get("_step", None) is not None:
            raise NotSupported("all rows are stepped at once")
        self.t = self.t + 1
        done = self.t >= self.lengths
        data = {"t": self.t.clone(), "reward": torch.ones(self.t.shape), "done": done, "terminated": done.clone()}
        return TensorDict(data, self.batch_size)


@pytest.mark.parametrize("resets", [True, False])
def test_batches_that_step_as_a_whole_answer_requests(resets: bool) -> None:
    sizes: list[int] = []

    def noting(tensordict: TensorDict) -> TensorDict:
        sizes.append(len(tensordict))
        return echo(tensordict)

    lengths = [2, 5, 3]
    with Collector(Whole(lengths, resets), noting, trust_policy=True) as collector:
        found = collector.execute(n_episodes=7).result()
    assert found.row.tolist() == list(range(7))
    assert found.length.tolist() == [lengths[lane] for lane in found.lane.tolist()]
    for row, length in enumerate(found.length.tolist()):
        assert found.steps["t"][row, :length].flatten().tolist() == list(range(length))
    assert sum(sizes) == int(found.length.sum()), "the policy is called with the rows that run"
    if not resets:
        assert found.lane.tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(("plugin", "env"), [("vmas", "vmas:balance"), ("envpool", "envpool:CartPole-v1")])
def test_batches_of_libraries_answer_requests(plugin: str, env: str) -> None:
    pytest.importorskip(plugin)
    kwargs = {"num_envs": 3, "max_steps": 6} if plugin == "vmas" else {"num_workers": 3}
    with Collector(env, create_env_kwargs=kwargs, seed=3) as collector:
        found = collector.execute(n_episodes=8).result()
    assert found.row.tolist() == list(range(8))
    assert found.last()["next", "done"].all()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_request_may_follow_when_all_rows_were_fetched(workers: int) -> None:
    """The rows of workers may come before their last report."""
    with make(workers, lambda: counters(2), echo) as collector:
        for _ in range(15):
            collector.execute(env_info=told([2, 1, 3]))
            fetched = 0
            while fetched < 3:
                part = collector.get(partial=True)
                fetched += 0 if part is None else len(part)
        assert collector.execute(env_info=told([4])).result().length.tolist() == [4]
