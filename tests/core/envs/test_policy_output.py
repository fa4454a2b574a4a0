"""The output of a policy is added to the root, in any TensorDict."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe import Compose, ParallelEnv, RewardSum, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv
from steppe.errors import PolicyError
from steppe_testing import ArrayCountingEnv, CountingEnv

BATCHES = {
    "one": CountingEnv,
    "one, on arrays": ArrayCountingEnv,
    "serial": lambda: SerialEnv(2, [lambda: CountingEnv(2), lambda: CountingEnv(4)]),
    "serial, on arrays": lambda: SerialEnv(2, [lambda: ArrayCountingEnv(2), lambda: ArrayCountingEnv(4)]),
    "parallel": lambda: ParallelEnv(2, [lambda: ArrayCountingEnv(2), lambda: ArrayCountingEnv(4)]),
}
EACH = pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())


def second(td):
    """Return the second of three actions, in a new TensorDict."""
    action = torch.zeros(*td.batch_size, 3, dtype=torch.bool)
    action[..., 1] = True
    return TensorDict(action=action)


def second_in_place(td):
    return td.update(second(td))


def not_in_place():
    choose = lambda observation: second(TensorDict(batch_size=observation.shape[:-1]))["action"]  # noqa: E731
    return TensorDictModule(choose, in_keys=["observation"], out_keys=["action"], inplace=False)


def tracked(env):
    return TransformedEnv(env, Compose(StepCounter(), RewardSum()))


@EACH
@pytest.mark.parametrize("policy", [second, not_in_place()], ids=["function", "module"])
@pytest.mark.parametrize("ends", [{}, {"break_when_any_done": False}, {"break_when_all_done": True}], ids=str)
@pytest.mark.parametrize("wrap", [lambda env: env, tracked], ids=["bare", "transformed"])
def test_the_form_of_a_policys_output_does_not_change_rollouts(make, policy, ends, wrap):
    """A rollout holds the same data as with a policy that writes in place."""
    with wrap(make()) as env:
        expected = env.rollout(6, second_in_place, **ends)
        data = env.rollout(6, policy, **ends)

    assert data.batch_size == expected.batch_size
    assert set(data.keys(True, True)) == set(expected.keys(True, True))
    assert (data == expected).all()


@EACH
def test_a_collector_holds_the_same_data(make):
    def collected(policy):
        collector = SyncDataCollector(tracked(make()), policy, frames_per_batch=12, total_frames=12)
        try:
            return next(iter(collector))
        finally:
            collector.shutdown()

    assert (collected(second) == collected(second_in_place)).all()


@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
def test_an_observation_that_the_policy_replaces_is_kept(make):
    def policy(td):
        replaced = {} if td["observation"] == 1 else {"observation": td["observation"] + 100}
        return TensorDict(action=torch.tensor([False, True, False]), **replaced)

    data = make(10).rollout(4, policy)

    assert data["observation"].flatten().tolist() == [100, 1, 102, 103]
    assert data["next", "observation"].flatten().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
def test_a_policy_that_returns_nothing_is_refused(make):
    with pytest.raises(PolicyError, match="must return a TensorDict, found NoneType"):
        make().rollout(2, lambda td: None)


def test_the_policys_device_gets_data_and_returns_output():
    """With auto_cast_to_device, data goes to the policy's device and its output back."""
    net = TensorDictModule(torch.nn.Linear(1, 2), in_keys=["observation"], out_keys=["action"], inplace=False)

    data = tracked(CountingEnv(action="continuous")).rollout(3, net, auto_cast_to_device=True)

    assert data["step_count"].flatten().tolist() == [0, 1, 2]
