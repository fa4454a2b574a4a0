"""Environments whose agents differ in the names and sizes of their entries."""

from __future__ import annotations

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict, lazy_stack

from steppe import EnvBase, ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs
from steppe.errors import ActionError
from steppe.specs import Bounded, Categorical, Composite, Unbounded


class Unequal(EnvBase):
    """Two agents with actions of 3 and 2 numbers, and an optional choice."""

    def __init__(self, *, observe: bool = False, choice: bool = False) -> None:
        super().__init__()
        first, second = Composite(action=Bounded(-1, 1, (3,))), Composite(action=Bounded(-1, 1, (2,)))
        if choice:
            second["choice"] = Categorical(4)
        self.action_spec = Composite(agents=torch.stack([first, second]))
        self.observe = observe
        observation = {"total": Unbounded((1,))}
        if observe:
            seen = [Composite(seen=Unbounded((3,))), Composite(seen=Unbounded((2,)))]
            observation["agents"] = torch.stack(seen)
        self.observation_spec = Composite(observation)

    def _seen(self, total, rows) -> TensorDict:
        data = TensorDict(total=total)
        if self.observe:
            data["agents"] = lazy_stack([TensorDict(seen=row) for row in rows])
        return data

    def _reset(self, tensordict=None, **kwargs):
        return self._seen(torch.zeros(1), (torch.zeros(3), torch.zeros(2)))

    def _step(self, tensordict):
        actions = [agent["action"] for agent in tensordict["agents"].unbind(0)]
        data = self._seen(sum(action.sum() for action in actions).reshape(1), actions)
        return data.update({"reward": torch.ones(1), "terminated": torch.zeros(1, dtype=torch.bool)})

    def _set_seed(self, seed) -> None:
        pass


def rows(data) -> list[torch.Tensor]:
    return [agent["action"] for agent in data["agents"].unbind(-1)]


@pytest.mark.parametrize("observe", [False, True])
@pytest.mark.parametrize("choice", [False, True])
def test_agents_act_at_random_each_in_its_own_spec(observe, choice) -> None:
    env = Unequal(observe=observe, choice=choice)
    check_env_specs(env)
    for data in (env.rand_action(), env.rand_step(), env.rand_step(env.reset()), env.rollout(3)):
        assert env.full_action_spec.is_in(data)
        assert [row.shape[-1] for row in rows(data)] == [3, 2]
        assert ("choice" in data["agents"].unbind(-1)[1].keys()) is choice


def test_a_group_entry_holds_observations_and_actions() -> None:
    rollout = Unequal(observe=True, choice=True).rollout(4)
    first, second = rollout["agents"].unbind(1)
    assert set(first.keys()) == {"seen", "action"}
    assert set(second.keys()) == {"seen", "action", "choice"}
    assert all(set(agent.keys()) == {"seen"} for agent in rollout["next", "agents"].unbind(1))
    assert torch.equal(rollout["next", "agents"].unbind(1)[0]["seen"], first["action"])
    assert torch.equal(second["seen"][1:], second["action"][:-1])
    assert torch.allclose(rollout["next", "total"][:, 0], first["action"].sum(-1) + second["action"].sum(-1))


def test_a_rollout_has_its_time_in_front_of_the_agents() -> None:
    agents = Unequal().rollout(4)["agents"]
    assert isinstance(agents, LazyStackedTensorDict)
    assert (agents.batch_size, agents.stack_dim) == ((4, 2), 1)


def test_recorded_actions_can_be_repeated() -> None:
    env = Unequal(observe=True, choice=True)
    taken = env.rollout(3)
    again = env.rollout(3, actions=taken.unbind(0))
    assert all(map(torch.equal, rows(taken), rows(again)))
    assert torch.equal(taken["agents"].unbind(1)[1]["choice"], again["agents"].unbind(1)[1]["choice"])
    assert torch.equal(taken["next", "total"], again["next", "total"])


def test_an_action_that_is_missing_is_named() -> None:
    env = Unequal()
    with pytest.raises(ActionError, match="agents"):
        env.rollout(2, actions=[TensorDict(other=torch.zeros(1))])


def collect(env) -> TensorDict:
    env.set_seed(5)
    (batch,) = SyncDataCollector(env, frames_per_batch=6, total_frames=6)
    return batch


def test_one_seed_gives_one_data_set() -> None:
    def seeded(env):
        env.set_seed(5)
        return env

    alone = seeded(Unequal()).rollout(6)
    assert all(map(torch.equal, rows(alone), rows(seeded(Unequal()).rollout(6))))
    assert all(map(torch.equal, rows(alone), rows(collect(Unequal()))))
    serial = seeded(SerialEnv(2, Unequal)).rollout(3)
    parallel = seeded(ParallelEnv(2, Unequal, num_processes=1))
    try:
        assert all(map(torch.equal, rows(serial), rows(parallel.rollout(3))))
    finally:
        parallel.close()
