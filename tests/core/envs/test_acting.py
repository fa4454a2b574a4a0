"""Random actions and random steps."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, Composite, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv, check_env_specs
from steppe_testing import ArrayCountingEnv, CountingEnv, MultiKeyCountingEnv, NestedCountingEnv


class Groups(CountingEnv):
    """Actions in groups that the observations do not have, one inside the other."""

    def __init__(self, batch_size=()):
        super().__init__(batch_size=batch_size)
        arm = Composite(action=Bounded(-1, 1, (*batch_size, 2, 3, 1)), shape=(*batch_size, 2, 3))
        arms = Composite(arm=arm, speed=Bounded(0, 1, (*batch_size, 2)), shape=(*batch_size, 2))
        self.action_spec = Composite(arms=arms, shape=batch_size)

    def _step(self, tensordict):
        one_hot = torch.zeros(*self.batch_size, 3, dtype=torch.bool)
        one_hot[..., 0] = True
        return super()._step(TensorDict({"action": one_hot}, self.batch_size))


@pytest.mark.parametrize("batch", [(), (4,)])
def test_groups_have_the_batch_sizes_of_their_specs(batch):
    env = Groups(batch)
    for data in (env.rand_action(), env.rand_action(env.reset()), env.rand_step(), env.rand_step(env.reset())):
        assert data["arms"].batch_size == (*batch, 2)
        assert data["arms", "arm"].batch_size == (*batch, 2, 3)
        assert env.full_action_spec.is_in(data.select("arms"))


@pytest.mark.parametrize("batch", [(), (4,)])
def test_so_they_have_in_rollouts_and_batches(batch):
    with SerialEnv(2, lambda: Groups(batch)) as many:
        for env, size in ((Groups(batch), batch), (many, (2, *batch))):
            data = env.rollout(3)
            assert data["arms"].batch_size == (*size, 3, 2)
            assert data["arms", "arm"].batch_size == (*size, 3, 2, 3)


def test_so_they_have_in_batches_of_a_collector():
    (data,) = SyncDataCollector(Groups(), frames_per_batch=6, total_frames=6)

    assert data["arms"].batch_size == (6, 2)


def test_array_environments_have_groups_of_actions():
    env = ArrayCountingEnv(actions=True)
    groups = {key[0] for key in env.action_keys if isinstance(key, tuple)}
    data = env.rollout(3)

    assert groups
    assert all(data[group].batch_size == (3,) for group in groups)


@pytest.mark.parametrize("make", [CountingEnv, NestedCountingEnv, MultiKeyCountingEnv, ArrayCountingEnv])
def test_a_random_step_needs_no_data(make):
    env = make()
    env.reset()
    td = env.rand_step()

    assert set(env.action_keys) <= set(td.keys(True, True))
    assert env.full_observation_spec.is_in(td["next"].select(*env.observation_keys))


class Drifting(CountingEnv):
    """Has no actions."""

    def __init__(self, max_steps=5):
        super().__init__(max_steps)
        self.action_spec = Composite()

    def _step(self, tensordict):
        return super()._step(TensorDict({"action": torch.tensor([True, False, False])}))


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TransformedEnv(env, StepCounter())])
@pytest.mark.parametrize("make", [Drifting, lambda: SerialEnv(2, Drifting)])
def test_an_environment_without_actions_can_be_rolled_out(make, wrap):
    env = wrap(make())

    for data in (env.rollout(3), env.rollout(3, lambda td: td), env.rollout(3, break_when_any_done=False)):
        assert data["observation"].reshape(-1, 3)[0].tolist() == [0, 1, 2]
        assert "action" not in data.keys()
    assert env.rand_action().is_empty()
    env.set_seed(0)
    assert env.rollout(9, break_when_all_done=True).shape[-1] == 5


def test_an_environment_without_actions_can_be_collected():
    """An environment without actions also passes check_env_specs."""
    check_env_specs(Drifting())
    collector = SyncDataCollector(Drifting(), frames_per_batch=7, total_frames=7)

    assert next(iter(collector))["observation"].flatten().tolist() == [0, 1, 2, 3, 4, 0, 1]
    collector.shutdown()
