"""Requests: rows of agents and environments, answered row by row."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import (
    Agent,
    Bounded,
    Categorical,
    Collector,
    Composite,
    EnvBase,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    Trajectories,
    TransformedEnv,
    Unbounded,
)
from steppe.errors import InfoError, NotSupported, PolicyError, SpecError, StateError
from steppe_action import ActionMask
from steppe_testing import CountingEnv, assert_equal_data
from tests.core.collectors.counters_and_walks import (
    LENGTHS,
    Echo,
    UniformAgent,
    counters,
    echo,
    ids,
    make,
    told,
    walks,
)

# -- rows of a request ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "lanes"), [(0, 1), (0, 3), (0, 16), (2, 2), (4, 4)])
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


def test_idle_lanes_are_not_stepped() -> None:
    policy = Echo()
    with Collector(lambda: counters(8), policy, trust_policy=True) as collector:
        collector.execute(env_info=told(LENGTHS))
        collector.get()
    assert policy.sizes == [8, 7, 6, 5, 4, 3, 2, 1, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_compact_false_calls_the_policy_with_all_rows(workers: int) -> None:
    """With compact=False, the policy also sees the rows that have ended."""
    lanes = 4 if workers else 8
    with make(workers, lambda: counters(lanes), All(lanes), compact=False) as collector:
        collector.execute(env_info=told(LENGTHS))
        found = collector.get()
    with make(workers, lambda: counters(lanes), echo) as collector:
        collector.execute(env_info=told(LENGTHS))
        expected = collector.get()
    at_work = found.steps.pop("at_work")
    assert_equal_data(found.steps, expected.steps)
    if not workers:
        assert at_work[found.length == 9][0].tolist() == [8, 7, 6, 5, 4, 3, 2, 1, 1], "nine calls, with all eight"


class All:
    """Always 1, of a whole batch; notes how many rows are at work."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        assert len(tensordict) == self.n
        mask = tensordict.get(("collector", "mask"), torch.ones(self.n, dtype=torch.bool))
        tensordict.set("at_work", mask.sum().expand(self.n))
        return echo(tensordict)


class Full(EnvBase):
    """Eight counters that can only be stepped together; lane i ends after its number of steps."""

    def __init__(self) -> None:
        super().__init__(batch_size=(8,))
        self.observation_spec = Composite(t=Unbounded((8, 1), dtype=torch.int64), shape=(8,))
        self.action_spec = Categorical(2, (8,))
        self.reward_spec = Unbounded((8, 1))
        self.t = torch.zeros(8, 1, dtype=torch.int64)

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        asked = None if tensordict is None else tensordict.get("_reset", None)
        self.t = torch.zeros_like(self.t) if asked is None else torch.where(asked, 0, self.t)
        return TensorDict({"t": self.t.clone()}, [8])

    def _step(self, tensordict: Any) -> Any:
        self.t = self.t + 1
        done = self.t >= torch.tensor(LENGTHS).unsqueeze(-1)
        reward = torch.ones(8, 1)
        return TensorDict({"t": self.t.clone(), "reward": reward, "done": done, "terminated": done}, [8])


def test_full_batches_call_the_policy_with_busy_lanes_only() -> None:
    """If the environment steps all lanes at once, the policy sees the busy ones."""
    policy = Echo()
    with Collector(Full(), policy, trust_policy=True) as collector:
        found = collector.execute(n_episodes=8).result()
    assert policy.sizes == [8, 7, 6, 5, 4, 3, 2, 1, 1]
    assert found.length.tolist() == LENGTHS
    for row, length in enumerate(LENGTHS):
        assert found.steps["t"][row, :length].flatten().tolist() == list(range(length))


def test_a_free_lane_takes_the_next_row() -> None:
    policy = Echo()
    with Collector(lambda: counters(2), policy, trust_policy=True) as collector:
        collector.execute(env_info=told([50, 1, 1, 1, 1, 1]))
        found = collector.get()
    assert len(policy.sizes) == 50
    assert found.row.tolist() == [0, 1, 2, 3, 4, 5]
    assert found.lane.tolist() == [0, 1, 1, 1, 1, 1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rows", [1, 5, 33])
def test_requests_may_have_any_number_of_rows(workers: int, rows: int) -> None:
    with make(workers, lambda: counters(4), echo) as collector:
        collector.execute(env_info=told([1 + row % 3 for row in range(rows)]))
        found = collector.get()
        assert found.length.tolist() == [1 + row % 3 for row in range(rows)]
        for number in (0, -1):
            with pytest.raises(SpecError, match=f"at least one row, found n_episodes={number}"):
                collector.execute(n_episodes=number)


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


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("workers", "lanes"), [(0, 1), (0, 3), (0, 16), (4, 4)])
def test_episodes_of_many_agents_in_many_environments(workers: int, lanes: int, native: bool) -> None:
    env = walks(lanes, native)

    def collect(seed: int, again: bool = False) -> Trajectories | tuple[Trajectories, Trajectories]:
        with make(workers, env, UniformAgent(2), seed=seed, policy_seeds=1, store_agent_state="all") as collector:
            with pytest.raises(StateError, match="execute"):
                collector.reexecute()
            collector.execute(n_episodes=32, agent_info=ids("agent_id", 32), env_info=ids("env_id", 32))
            first = collector.get(blocking=True)
            return (first, collector.reexecute().result()) if again else first

    found, again = collect(1, again=True)
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
    assert last["next", "truncated"][~outside].all()
    following = steps["next"]
    assert torch.equal(following["done"], following["terminated"] | following["truncated"])
    assert not found.alive.any()
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
    assert_equal_data(collect(1).to_tensordict(), found.to_tensordict())
    assert collect(2).steps["identifier"][:, 0].flatten().tolist() != identifiers


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("workers", "lanes", "n_steps"),
    [(0, 16, 2), (0, 16, 7), (0, 16, 100), (0, 1, 7), (0, 3, 7), (4, 4, 7), (4, 4, 100)],
)
def test_slices_continue_the_previous_slice(workers: int, lanes: int, n_steps: int, native: bool) -> None:
    env, rows = walks(lanes, native), lanes * max(workers, 1)
    with make(workers, env, UniformAgent(2), seed=1) as collector:
        collector.reset(agent_info=ids("agent_id", rows), env_info=ids("env_id", rows))
        last: dict[int, torch.Tensor] = {}
        steps_of, dones, expected = dict.fromkeys(range(rows), 0), dict.fromkeys(range(rows), 0), list(range(rows))
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


def test_each_row_of_agent_info_reaches_its_environment() -> None:
    with Collector(lambda: counters(2), Greedy()) as collector:
        collector.execute(agent_info={"epsilon": torch.tensor([0.0, 1.0])}, env_info=told([2000, 2000]))
        action = collector.get().steps["action"]
    assert action[0].eq(1).all()
    assert abs(float(action[1].float().mean()) - 0.5) < 5 * 0.5 / 2000**0.5


def test_agent_info_may_change_in_the_middle_of_an_episode() -> None:
    with Collector(lambda: counters(4), UniformAgent()) as collector:
        collector.reset(agent_info=ids("agent_id", 4), env_info=told([3, 9, 20, 30]))
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
def test_an_automatic_reset_repeats_the_info_of_its_lane(workers: int) -> None:
    """An automatic reset uses the env_info and agent_info of its lane."""
    lanes = 4 if not workers else 2
    with make(workers, lambda: counters(lanes), UniformAgent(), auto_reset=True) as collector:
        collector.reset(agent_info=ids("agent_id", 4), env_info=told([1, 2, 3, 4]))
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
                "agent_info has 31 rows, but n_episodes is 32",
            ),
            ({"agent_info": ids("agent_id", 3), "env_info": told([1, 2])}, SpecError, "3 rows, env_info has 2 rows"),
            ({"agent_info": ids("agnt_id", 3)}, InfoError, r"must have \['agent_id'\].* found \['agnt_id'\]"),
            ({"env_info": ids("env_id", 3)}, InfoError, "'length'"),
            ({"agent_info": {"agent_id": torch.zeros(3)}}, SpecError, "dtype torch.int64, found torch.float32"),
            ({}, SpecError, "number of episodes"),
        ]
        for arguments, error, said in wrong:
            with pytest.raises(error, match=said):
                collector.execute(**arguments)
        with pytest.raises(KeyError):
            collector.execute(env_info=ids("env_id", 3))
        collector.execute(env_info=told([2, 3]))
        assert collector.get().length.tolist() == [2, 3]


def test_an_environment_without_info_spec_gets_no_info() -> None:
    with (
        Collector(lambda: CountingEnv(3)) as collector,
        pytest.raises(InfoError, match=r"takes no env_info, found \['env_id'\].*self.env_info_spec = Composite"),
    ):
        collector.execute(env_info=ids("env_id", 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_undeclared_agent_infos_take_the_spec_of_the_first(workers: int) -> None:
    """A request that is refused decides nothing."""

    def act(tensordict: TensorDict) -> TensorDict:
        return echo(tensordict).set("scaled", 2 * tensordict["agent_info", "scale"])

    with make(workers, lambda: counters(2), act) as collector:
        with pytest.raises(SpecError, match="agent_info has 2 rows, but n_episodes is 3"):
            collector.execute(3, agent_info={"size": [1, 2]}, env_info=told([1]))
        found = collector.execute(agent_info={"scale": [0.5, 1.5, 2.5]}, env_info=told([1, 2, 1])).result()
        assert found.steps["scaled"][:, 0].tolist() == [1, 3, 5]
        with pytest.raises(InfoError, match=r"must have \['scale'\], as the first request says"):
            collector.execute(agent_info={"size": [0.5]}, env_info=told([1]))
        with pytest.raises(SpecError, match=r"dtype torch\.float32, found torch\.int64"):
            collector.execute(agent_info={"scale": [1]}, env_info=told([1]))


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


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        ("t", "the environment"),
        (("env_info", "length"), "the request"),
        (("agent_info", "agent_id"), "the request"),
        (("agent_state", "timestep"), "the engine"),
    ],
)
def test_a_policy_may_not_overwrite_entries_of_others(key: Any, owner: str) -> None:
    class Meddling(UniformAgent):
        def forward(self, tensordict: Any) -> Any:
            tensordict = super().forward(tensordict)
            return tensordict.set(key, torch.full_like(tensordict.get(key), 7))

    with Collector(lambda: counters(2), Meddling()) as collector:
        collector.execute(env_info=told([3, 4]))
        with pytest.raises(PolicyError, match=f"Meddling writes .*, which belongs to {owner}") as caught:
            collector.get()
    assert repr(key) in str(caught.value)


def test_a_policy_may_read_what_the_environment_was_told() -> None:
    def until_the_end(tensordict: TensorDict) -> TensorDict:
        to_go = tensordict["env_info", "length"] - tensordict["t"].squeeze(-1)
        return echo(tensordict).set("to_go", to_go)

    with Collector(lambda: counters(2), until_the_end) as collector:
        found = collector.execute(env_info=told([3, 1, 2])).result()
    assert found.steps["to_go"].tolist() == [[3, 2, 1], [1, 0, 0], [2, 1, 0]]


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
            found = asked.get().steps.reshape(batch.batch_size)
            assert_equal_data(found.exclude("is_init", "collector"), batch.exclude("collector"))
            assert torch.equal(found["collector", "traj_ids"], batch["collector", "traj_ids"])


def test_iteration_after_a_request_starts_new_episodes() -> None:
    with Collector(lambda: CountingEnv(100, batch_size=(2,)), frames_per_batch=8, max_steps=3) as collector:
        next(collector)
        collector.execute(n_episodes=2)
        assert collector.get().length.tolist() == [3, 3]
        assert next(collector)["observation"][:, 0].eq(0).all()


def test_requests_need_one_batch_dimension() -> None:
    """An environment of two batch dimensions takes no requests."""
    with (
        Collector(lambda: CountingEnv(3, batch_size=(2, 2))) as collector,
        pytest.raises(NotSupported, match="one dim"),
    ):
        collector.execute(n_episodes=2)


def test_iteration_needs_frames_per_batch() -> None:
    with Collector(lambda: CountingEnv(3)) as collector, pytest.raises(TypeError, match="frames_per_batch"):
        next(iter(collector))


# -- random actions ---------------------------------------------------------------------------------------------------


class Legal(EnvBase):
    """Allows three of seven actions, others at each step and in each environment; ends after ``length`` steps."""

    def __init__(self, first: int = 0, length: int = 12, chooses: bool = True) -> None:
        super().__init__()
        self.observation_spec = Composite(action_mask=Unbounded((7,), dtype=torch.bool))
        self.action_spec = Categorical(7)
        self.reward_spec = Unbounded((1,))
        self.first, self.length, self.chooses, self.t = first, length, chooses, 0

    @property
    def chooses_random_actions(self) -> bool:
        return self.chooses

    def _set_seed(self, seed: int | None) -> None:
        pass

    def _observed(self) -> dict[str, torch.Tensor]:
        return {"action_mask": (torch.arange(7) - self.first - 2 * self.t) % 7 < 3}

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        self.t = 0
        return TensorDict(self._observed())

    def _step(self, tensordict: Any) -> Any:
        assert self._observed()["action_mask"][tensordict["action"]]
        self.t += 1
        return TensorDict({**self._observed(), "reward": torch.ones(1), "done": torch.tensor([self.t >= self.length])})

    def rand_action(self, tensordict: Any = None) -> Any:
        if not self.chooses or tensordict is None:
            return super().rand_action(tensordict)
        assert self.t < self.length, "asked of an environment that has no work"
        allowed = tensordict["action_mask"].float()
        action = torch.multinomial(allowed, 1, generator=self.base_state.generator).squeeze(-1)
        return tensordict.set("action", action)


def masked(first: int, length: int) -> EnvBase:
    return TransformedEnv(Legal(first, length, chooses=False), ActionMask())


def lanes_of(make: Any) -> EnvBase:
    return SerialEnv(3, [lambda i=i: make(i, 3 * i + 2) for i in range(3)])


def masked_batch() -> EnvBase:
    return TransformedEnv(lanes_of(lambda i, length: Legal(i, length, chooses=False)), ActionMask())


@pytest.mark.parametrize(
    ("env", "workers"),
    [
        (Legal, 0),
        (Legal, 2),
        (lambda: masked(1, 9), 0),
        (lambda: lanes_of(Legal), 0),
        (lambda: lanes_of(masked), 0),
        (lambda: lanes_of(masked), 1),
        (lambda: TransformedEnv(lanes_of(Legal), StepCounter()), 0),
        (masked_batch, 0),
        (masked_batch, 1),
    ],
)
def test_random_actions_keep_to_masks_and_seed(env: Any, workers: int) -> None:
    def collect(seed: int) -> Trajectories:
        with make(workers, env, seed=seed) as collector:
            return collector.execute(n_episodes=8).result()

    found = collect(5)
    action, mask = found.steps["action"][found.mask()], found.steps["action_mask"][found.mask()]
    assert mask.gather(1, action.unsqueeze(-1)).all()
    assert len(set(zip(mask.int().argmax(-1).tolist(), action.tolist(), strict=True))) > 8, "they are drawn"
    assert_equal_data(collect(5).to_tensordict(), found.to_tensordict())
    assert collect(6).steps["action"].tolist() != found.steps["action"].tolist()


def test_random_actions_match_a_rollout() -> None:
    """A request to a single environment draws the random actions of a rollout."""
    with Collector(Legal(2, 20), seed=3) as collector:
        found = collector.execute(n_episodes=1).result()
    env = Legal(2, 20)
    env.set_seed(3)
    assert found.steps["action"][0].tolist() == env.rollout(30)["action"].tolist()
