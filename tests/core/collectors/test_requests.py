"""Requests: rows of agents and environments, answered row by row."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe import (
    Agent,
    Bounded,
    Categorical,
    Collector,
    Composite,
    EnvBase,
    MultiSyncDataCollector,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    Trajectories,
    TransformedEnv,
    Unbounded,
    split_trajectories,
)
from steppe.errors import InfoError, NotSupported, PolicyError, SpecError, StateError, WorkerError
from steppe_testing import CountingEnv, assert_equal_data

LENGTHS = [3, 1, 7, 5, 2, 9, 4, 6]


class CountTo(EnvBase):
    """Counts to what it is told at its reset, and echoes its number."""

    def __init__(self) -> None:
        super().__init__()
        whole = torch.int64
        self.observation_spec = Composite(t=Unbounded((1,), dtype=whole), env_id=Unbounded((1,), dtype=whole))
        self.action_spec = Categorical(2)
        self.reward_spec = Unbounded((1,))
        self.add_truncated_keys()
        self.env_info_spec = Composite(length=Unbounded((), dtype=whole), env_id=Unbounded((), dtype=whole))
        self.to_go = self.t = self.env_id = 0

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _observed(self) -> dict[str, torch.Tensor]:
        return {"t": torch.tensor([self.t]), "env_id": torch.tensor([self.env_id])}

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        info = None if tensordict is None else tensordict.get("env_info", None)
        self.t = 0
        if info is not None:
            self.to_go, self.env_id = int(info["length"]), int(info["env_id"])
        return TensorDict(self._observed())

    def _step(self, tensordict: Any) -> Any:
        self.t += 1
        done = torch.tensor([self.t == self.to_go])
        return TensorDict(
            {
                **self._observed(),
                "reward": torch.ones(1),
                "done": done,
                "terminated": done,
                "truncated": torch.zeros(1, dtype=torch.bool),
            }
        )


class MyEnv(EnvBase):
    """The walk of the rlstructures documents: left or right by 0.3, from a random place, until it is outside."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(
            x=Unbounded((1,)), identifier=Unbounded((1,)), env_id=Unbounded((1,), dtype=torch.int64)
        )
        self.action_spec = Categorical(2)
        self.reward_spec = Unbounded((1,))
        self.env_info_spec = Composite(env_id=Unbounded((), dtype=torch.int64))
        self.generator = torch.Generator()
        self.env_id = 0

    def _set_seed(self, seed: int | None) -> None:
        self.generator.manual_seed(seed or 0)

    def _observed(self) -> dict[str, torch.Tensor]:
        return {
            "x": self.x.clone(),
            "identifier": self.identifier.clone(),
            "env_id": torch.tensor([self.env_id]),
        }

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        info = None if tensordict is None else tensordict.get("env_info", None)
        self.env_id = 0 if info is None else int(info["env_id"])
        self.x = torch.rand(1, generator=self.generator) * 2 - 1
        self.identifier = torch.rand(1, generator=self.generator)
        return TensorDict(self._observed())

    def _step(self, tensordict: Any) -> Any:
        self.x = self.x + (0.3 if int(tensordict["action"]) else -0.3)
        done = self.x.abs() > 1
        return TensorDict({**self._observed(), "reward": self.x.clone(), "done": done, "terminated": done})


class UniformAgent(Agent):
    """Acts at random, counts its steps and says its number."""

    agent_info_spec = Composite(agent_id=Unbounded((), dtype=torch.int64))
    agent_info_default = {"agent_id": 0}
    agent_state_spec = Composite(timestep=Unbounded((), dtype=torch.int64))

    def __init__(self, n_actions: int = 2) -> None:
        super().__init__()
        self.n_actions = n_actions

    def forward(self, tensordict: Any) -> Any:
        probabilities = torch.randn(*tensordict.batch_size, self.n_actions).softmax(-1)
        tensordict.set("action", torch.multinomial(probabilities, 1).squeeze(-1))
        tensordict.set("action_probabilities", probabilities)
        tensordict.set("agent_id", tensordict["agent_info", "agent_id"].clone())
        tensordict.set(("next", "agent_state", "timestep"), tensordict["agent_state", "timestep"] + 1)
        return tensordict


class Echo:
    """Always 1; notes how many rows it is called with."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        self.sizes.append(len(tensordict))
        return tensordict.set("action", torch.ones(tensordict.batch_size, dtype=torch.int64))


def echo(tensordict: TensorDict) -> TensorDict:
    return tensordict.set("action", torch.ones(tensordict.batch_size, dtype=torch.int64))


def counters(n: int = 4) -> EnvBase:
    return SerialEnv(n, CountTo)


def walks() -> EnvBase:
    return SerialEnv(4, lambda: TransformedEnv(MyEnv(), StepCounter(100)))


def told(lengths: list[int]) -> TensorDict:
    ids = torch.arange(len(lengths))
    return TensorDict({"length": torch.tensor(lengths), "env_id": ids}, [len(lengths)])


def ids(name: str, n: int) -> TensorDict:
    return TensorDict({name: torch.arange(n)}, [n])


def make(workers: int, env: Any, policy: Any = None, **kwargs: Any) -> Any:
    if not workers:
        return Collector(env, policy, **kwargs)
    return MultiSyncDataCollector([env] * workers, policy, **kwargs)


# -- rows of a request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "lanes"), [(0, 1), (0, 3), (0, 16), (2, 2), (2, 4)])
def test_rows_come_back_in_the_order_of_the_request(workers: int, lanes: int) -> None:
    with make(workers, lambda: counters(lanes), echo) as collector:
        collector.execute(env_info=told(LENGTHS))
        found = collector.get()
        assert found.length.tolist() == LENGTHS
        assert found.row.tolist() == list(range(8))
        assert found.steps.batch_size == (8, 9)
        assert found.steps.names == [None, "time"]
        for row, length in enumerate(LENGTHS):
            assert found.steps["t"][row, :length].flatten().tolist() == list(range(length))
            assert found.steps["env_id"][row, :length].eq(row).all()
        done = found.steps["next", "done"].squeeze(-1)
        assert done.sum(1).eq(1).all()
        assert found.last()["next", "done"].all()
        assert not found.alive.any()
        assert found.steps["is_init"][:, 0].all()
        assert found.episode_return().tolist() == LENGTHS
        padding = found.steps[~found.mask()]
        assert all((padding[key] == 0).all() for key in padding.keys(True, True)), "padding is clean"


def test_what_has_no_work_costs_nothing() -> None:
    policy = Echo()
    with Collector(lambda: counters(8), policy) as collector:
        collector.execute(env_info=told(LENGTHS))
        collector.get()
    assert policy.sizes == [8, 7, 6, 5, 4, 3, 2, 1, 1]


def test_a_free_lane_takes_the_next_row() -> None:
    policy = Echo()
    with Collector(lambda: counters(2), policy) as collector:
        collector.execute(env_info=told([50, 1, 1, 1, 1, 1]))
        found = collector.get()
    assert len(policy.sizes) == 50
    assert found.row.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.lane.tolist() == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_any_number_of_rows(workers: int, rows: int) -> None:
    with make(workers, lambda: counters(4), echo) as collector:
        collector.execute(env_info=told([1 + row % 3 for row in range(rows)]))
        found = collector.get()
        assert found.length.tolist() == [1 + row % 3 for row in range(rows)]
        with pytest.raises(SpecError, match="at least one row"):
            collector.execute(n_episodes=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_policies_by_environments_are_a_table(workers: int) -> None:
    agents = {"agent_id": torch.arange(3).unsqueeze(1)}
    with make(workers, lambda: counters(4), UniformAgent()) as collector:
        collector.execute(
            agent_info=TensorDict(agents, [3, 1]),
            env_info=told([2, 5, 3, 1]).unsqueeze(0),
        )
        found = collector.get()
    assert found.batch_size == (3, 4)
    assert found.steps.batch_size == (3, 4, 5)
    assert found.episode_return().tolist() == [[2, 5, 3, 1]] * 3
    assert found.agent_info["agent_id"].tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert found.env_info["env_id"].tolist() == [[0, 1, 2, 3]] * 3


# -- the two examples of rlstructures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 4])
def test_episodes_of_many_agents_in_many_environments(workers: int) -> None:
    def collect(seed: int) -> tuple[Trajectories, Trajectories]:
        with make(workers, walks, UniformAgent(2), seed=seed, store_agent_state="all") as collector:
            with pytest.raises(StateError, match="execute"):
                collector.reexecute()
            collector.execute(n_episodes=32, agent_info=ids("agent_id", 32), env_info=ids("env_id", 32))
            first = collector.get(blocking=True)
            return first, collector.reexecute().result()

    found, again = collect(1)
    assert found.batch_size == (32,)
    assert found.steps.batch_size == (32, int(found.length.max()))
    assert ((found.length >= 1) & (found.length <= 100)).all()
    mask, steps = found.mask(), found.steps
    for name, value in (("agent_id", found.agent_info), ("env_id", found.env_info)):
        assert value[name].tolist() == list(range(32))
        column = steps[name].reshape(mask.shape)
        assert torch.equal(column[mask], torch.arange(32).unsqueeze(1).expand_as(mask)[mask])
    done = steps["next", "done"].squeeze(-1)
    assert torch.equal(done.sum(1), torch.ones(32, dtype=torch.int64))
    last = found.last()
    assert last["next", "done"].all()
    outside = last["next", "x"].abs() > 1
    assert torch.equal(last["next", "terminated"], outside)
    assert (found.length[~outside.squeeze(-1)] == 100).all()
    assert torch.equal(steps["next", "reward"], steps["next", "x"])
    goes_on = mask[:, 1:]
    assert torch.equal(steps["x"][:, 1:][goes_on], steps["next", "x"][:, :-1][goes_on])
    moved = (steps["next", "x"] - steps["x"]).squeeze(-1)
    assert torch.allclose(moved[mask], (steps["action"][mask] * 2 - 1) * 0.3, atol=1e-6)
    assert torch.allclose(steps["action_probabilities"].sum(-1)[mask], torch.ones(()))
    time = torch.arange(mask.shape[1]).expand_as(mask)[mask]
    assert found.agent_state["timestep"].eq(0).all()
    assert torch.equal(steps["agent_state", "timestep"][mask], time)
    assert torch.equal(steps["next", "agent_state", "timestep"][mask], time + 1)

    identifiers = steps["identifier"][:, 0].flatten().tolist()
    assert len(set(identifiers)) == 32
    assert again.row.tolist() == list(range(32))
    assert again.agent_info["agent_id"].tolist() == list(range(32))
    assert not set(again.steps["identifier"][:, 0].flatten().tolist()) & set(identifiers)
    same, _ = collect(1)
    assert_equal_data(same.steps, steps)
    other, _ = collect(2)
    assert other.steps["identifier"][:, 0].flatten().tolist() != identifiers


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("n_steps", [2, 7, 100])
def test_slices_go_on_where_the_last_one_stopped(workers: int, n_steps: int) -> None:
    env = walks if workers else lambda: SerialEnv(16, lambda: TransformedEnv(MyEnv(), StepCounter(100)))
    with make(workers, env, UniformAgent(2), seed=1) as collector:
        collector.reset_lanes(agent_info=ids("agent_id", 16), env_info=ids("env_id", 16))
        last: dict[int, torch.Tensor] = {}
        steps_of, dones, expected = dict.fromkeys(range(16), 0), dict.fromkeys(range(16), 0), list(range(16))
        while collector.execute(n_steps=n_steps) is not None:
            found = collector.get()
            assert found.row.tolist() == expected
            assert found.env_info["env_id"].tolist() == expected
            assert found.agent_info["agent_id"].tolist() == expected
            assert (found.length <= n_steps).all()
            for at, lane in enumerate(expected):
                length = int(found.length[at])
                assert int(found.agent_state["timestep"][at]) == steps_of[lane]
                if lane in last:
                    assert torch.equal(found.steps["x"][at, 0], last[lane])
                last[lane] = found.steps["next", "x"][at, length - 1]
                steps_of[lane] += length
                dones[lane] += int(found.steps["next", "done"][at].sum())
            expected = found.row[found.alive].tolist()
            assert collector.n_live == len(expected)
        assert set(dones.values()) == {1}
        assert collector.get() is None
        assert collector.execute(n_steps=n_steps) is None


# -- what is told -----------------------------------------------------------------------------------------------------


class Greedy(Agent):
    """Acts at random with probability epsilon, otherwise 1."""

    agent_info_spec = Composite(epsilon=Bounded(0.0, 1.0, ()))

    def forward(self, tensordict: Any) -> Any:
        random = torch.rand(tensordict.batch_size) < tensordict["agent_info", "epsilon"]
        action = torch.where(random, torch.randint(0, 2, tensordict.batch_size), 1)
        return tensordict.set("action", action)


def test_the_agent_does_what_it_is_told_row_by_row() -> None:
    with Collector(lambda: counters(2), Greedy()) as collector:
        collector.execute(agent_info={"epsilon": torch.tensor([0.0, 1.0])}, env_info=told([2000, 2000]))
        action = collector.get().steps["action"]
    assert action[0].eq(1).all()
    assert abs(float(action[1].float().mean()) - 0.5) < 5 * 0.5 / 2000**0.5


def test_what_the_agent_is_told_may_change_in_the_middle_of_an_episode() -> None:
    with Collector(lambda: counters(4), UniformAgent()) as collector:
        collector.reset_lanes(agent_info=ids("agent_id", 4), env_info=told([3, 9, 20, 30]))
        seen = []
        for number in range(5):
            collector.execute(n_steps=4, agent_info={"agent_id": torch.full((4,), number)})
            found = collector.get()
            assert found.agent_info["agent_id"].eq(number).all()
            assert found.steps["agent_id"][found.mask()].eq(number).all()
            assert found.agent_state["timestep"].eq(4 * number).all()
            seen.append(len(found))
        assert seen == [4, 3, 3, 2, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_episode_that_begins_anew_is_told_what_its_lane_was_told(workers: int) -> None:
    lanes = 4 if not workers else 2
    with make(workers, lambda: counters(lanes), UniformAgent(), auto_reset=True) as collector:
        collector.reset_lanes(agent_info=ids("agent_id", 4), env_info=told([1, 2, 3, 4]))
        for _ in range(3):
            collector.execute(n_steps=6)
            found = collector.get()
            assert found.steps.batch_size == (4, 6)
            assert found.alive.all()
            assert found.length.eq(6).all()
            assert torch.equal(found.steps["env_id"].squeeze(-1), torch.arange(4).unsqueeze(1).expand(4, 6))
            assert (found.steps["t"].squeeze(-1) < torch.tensor([[1], [2], [3], [4]])).all()
            assert torch.equal(found.steps["is_init"], found.steps["t"] == 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_wrong_infos_are_refused_before_anything_moves(workers: int) -> None:
    with make(workers, lambda: counters(4), UniformAgent()) as collector:
        wrong = [
            (
                {"n_episodes": 32, "agent_info": ids("agent_id", 31)},
                SpecError,
                "agent_info has 31 rows, request has 32",
            ),
            ({"agent_info": ids("agent_id", 3), "env_info": told([1, 2])}, SpecError, "3 rows, env_info has 2 rows"),
            ({"agent_info": ids("agnt_id", 3)}, InfoError, r"must have \['agent_id'\].* found \['agnt_id'\]"),
            ({"env_info": ids("env_id", 3)}, InfoError, "'length'"),
            ({"agent_info": {"agent_id": torch.zeros(3)}}, SpecError, "dtype torch.int64, found torch.float32"),
            ({}, SpecError, "how many episodes"),
        ]
        for arguments, error, said in wrong:
            with pytest.raises(error, match=said):
                collector.execute(**arguments)
        with pytest.raises(KeyError):
            collector.execute(env_info=ids("env_id", 3))
        collector.execute(env_info=told([2, 3]))
        assert collector.get().length.tolist() == [2, 3]


def test_an_environment_that_takes_no_info_is_not_told_any() -> None:
    with Collector(lambda: CountingEnv(3)) as collector, pytest.raises(InfoError, match="takes no env_info"):
        collector.execute(env_info=ids("env_id", 3))


def test_an_agent_without_a_default_has_to_be_told() -> None:
    with Collector(lambda: counters(2), Greedy()) as collector, pytest.raises(InfoError, match="agent_info_default"):
        collector.execute(n_episodes=2)


def test_a_policy_does_not_write_what_is_not_its_own() -> None:
    def meddling(tensordict: TensorDict) -> Any:
        tensordict["env_info", "length"] = torch.zeros(tensordict.batch_size, dtype=torch.int64)
        return echo(tensordict)

    with Collector(lambda: counters(2), meddling) as collector:
        collector.execute(env_info=told([3, 4]))
        with pytest.raises(PolicyError, match=r"\('env_info', 'length'\), which belongs to the request"):
            collector.get()


def test_a_state_that_is_declared_has_to_be_written() -> None:
    class Forgetful(UniformAgent):
        def forward(self, tensordict: Any) -> Any:
            return echo(tensordict)

    with Collector(lambda: counters(2), Forgetful()) as collector:
        collector.execute(env_info=told([3, 4]))
        with pytest.raises(PolicyError, match=r"\('next', 'agent_state', 'timestep'\)"):
            collector.get()


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


def test_rows_that_have_ended_can_be_had_before_the_others(tmp_path: Any) -> None:
    file = tmp_path / "go"
    with make(2, lambda: SerialEnv(2, lambda: Waiting(str(file))), echo) as collector:
        job = collector.execute(env_info=told([1, 60, 9, 60]))
        rows: list[int] = []
        file.touch()
        before = 0
        while not (over := job.done()) or len(rows) < 4:
            part = collector.get(partial=True)
            if part is not None:
                rows += part.row.tolist()
                assert part.steps["env_id"][:, 0].flatten().tolist() == part.row.tolist()
            done, total = job.progress()
            assert done >= before
            assert total == 4
            before = done
            assert not over or len(rows) == 4 or part is not None
        assert sorted(rows) == [0, 1, 2, 3]


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


def test_episodes_are_not_asked_for_in_the_middle_of_others() -> None:
    with Collector(lambda: counters(2), echo) as collector:
        collector.reset_lanes(env_info=told([5, 5]))
        collector.execute(n_steps=2)
        collector.get()
        with pytest.raises(StateError, match=r"drop\(\) forgets"):
            collector.execute(env_info=told([1]))
        collector.drop()
        collector.execute(env_info=told([1]))
        assert collector.get().length.tolist() == [1]


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
        collector.reset_lanes(env_info=told([1000, 1000]))
        collector.execute(n_steps=10)
        found = collector.get()
        assert not found.last()["next", "done"].any()
        assert found.alive.all()


def test_weights_that_come_while_a_job_runs_are_those_of_the_next() -> None:
    policy = TensorDictModule(Weighted(), ["t"], ["action", "weight"])
    with make(2, lambda: counters(2), policy) as collector:
        for number in range(3):
            collector.execute(env_info=told([50] * 4))
            policy.module.weight.data.fill_(number + 1)
            collector.update_policy_weights_()
            found = collector.get()
            versions = found.policy_version.unsqueeze(1).expand(4, 50).float()
            assert torch.equal(found.steps["weight"], versions), "what a row says is what it was made with"
            assert versions.max() <= number + 1
        collector.execute(env_info=told([5] * 4))
        assert collector.get().policy_version.eq(3).all()


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def forward(self, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(len(t), dtype=torch.int64), self.weight.expand(len(t))


@pytest.mark.parametrize("where", ["step", "kill", "policy"])
def test_what_goes_wrong_in_a_worker_is_heard_of(where: str) -> None:
    with make(2, lambda: SerialEnv(2, lambda: Breaking(where)), broken if where == "policy" else echo) as collector:
        collector.execute(env_info=told([30] * 4))
        with pytest.raises(WorkerError, match="ended unexpectedly" if where == "kill" else f"broken in {where}"):
            collector.get()
        with pytest.raises(RuntimeError, match="after an error"):
            collector.update_policy_weights_()


class Breaking(CountTo):
    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def _step(self, tensordict: Any) -> Any:
        if self.t == 5 and self.env_id == 3:
            if self.where == "step":
                raise ValueError("broken in step")
            if self.where == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
        return super()._step(tensordict)


def broken(tensordict: TensorDict) -> Any:
    raise ValueError("broken in policy")


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


def test_a_seed_in_the_middle_of_episodes_begins_others() -> None:
    with make(2, lambda: counters(2), echo) as collector:
        collector.reset_lanes(env_info=told([9] * 4))
        collector.execute(n_steps=4)
        collector.get()
        collector.set_seed(3)
        assert collector.n_live == 0
        collector.execute(env_info=told([2] * 4))
        assert collector.get().length.tolist() == [2] * 4


# -- beside iteration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["gym:CartPole-v1", lambda: SerialEnv(3, "gym:CartPole-v1")])
def test_one_seed_gives_the_data_of_iteration(env: Any) -> None:
    with (
        SyncDataCollector(env, frames_per_batch=60, seed=5) as iterating,
        Collector(env, auto_reset=True, seed=5) as asked,
    ):
        for _ in range(2):
            batch = next(iterating)
            asked.execute(n_steps=batch.batch_size[-1])
            found = asked.get().steps.exclude("is_init")
            assert_equal_data(found.reshape(batch.batch_size), batch.exclude("collector"))


def test_who_iterates_after_a_request_begins_anew() -> None:
    with Collector(lambda: CountingEnv(100, batch_size=(2,)), frames_per_batch=8, max_steps=3) as collector:
        next(collector)
        collector.execute(n_episodes=2)
        assert collector.get().length.tolist() == [3, 3]
        assert next(collector)["observation"][:, 0].eq(0).all()


def test_an_environment_of_two_batch_dimensions_takes_no_requests() -> None:
    with (
        Collector(lambda: CountingEnv(3, batch_size=(2, 2))) as collector,
        pytest.raises(NotSupported, match="one dim"),
    ):
        collector.execute(n_episodes=2)


def test_without_a_number_of_frames_there_is_nothing_to_iterate_over() -> None:
    with Collector(lambda: CountingEnv(3)) as collector, pytest.raises(TypeError, match="frames_per_batch"):
        next(iter(collector))


# -- what comes back --------------------------------------------------------------------------------------------------


@pytest.fixture
def record() -> Trajectories:
    with Collector(lambda: counters(3), UniformAgent()) as collector:
        collector.execute(agent_info=ids("agent_id", 4), env_info=told([3, 1, 5, 2]))
        return collector.get()


def test_slices_and_masks_keep_steps_and_infos_together(record: Trajectories, tmp_path: Any) -> None:
    for part in (record[1:3], record[record.length > 2], record.to("cpu"), record.reshape(2, 2).reshape(4)[1:3]):
        assert part.steps.batch_size[:-1] == part.batch_size
        first = part.steps["env_id"][:, 0].flatten()
        assert torch.equal(first, part.env_info["env_id"])
        assert torch.equal(first, part.agent_info["agent_id"])
    kept = record.memmap(tmp_path / "kept")
    assert_equal_data(Trajectories.load_memmap(tmp_path / "kept").steps, kept.steps)


def test_rows_of_different_lengths_are_joined(record: Trajectories) -> None:
    joined = Trajectories.join([record[1:2].shorten(), record])
    assert joined.steps.batch_size == (5, 5)
    assert joined.length.tolist() == [1, 3, 1, 5, 2]
    assert (joined.steps["next", "reward"][0, 1:] == 0).all()
    assert record.pad_to(9).steps.batch_size == (4, 9)
    with pytest.raises(ValueError, match="5 steps, more than 4"):
        record.pad_to(4)


def test_a_record_becomes_frames(record: Trajectories) -> None:
    flat = record.flat()
    assert flat.batch_size == (11,)
    assert flat["t"].flatten().tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 1]
    steps = record.as_steps()
    assert steps["agent_info", "agent_id"].stride()[-1] == 0
    split = split_trajectories(steps)
    assert split.batch_size == (4, 5)
    assert torch.equal(split["collector", "mask"], record.mask())
    assert record.at(0)["t"].eq(0).all()
    with pytest.raises(IndexError):
        record.at(1)
