"""as_policy: all kinds of policies."""

from __future__ import annotations

import sys

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe.envs import RandomPolicy, as_policy
from steppe.errors import PolicyError
from steppe.specs import Bounded, Composite, OneHot, Unbounded
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
)

ACTION = torch.tensor([False, True, False])


class TwoObservations(CountingEnv):
    """Observations ``beta`` and ``alpha``, the first ten times the second."""

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(beta=Unbounded((1,)), alpha=Unbounded((1,)))

    def _data(self):
        count = self.count.float()
        return TensorDict({"alpha": count, "beta": 10 * count})


def test_a_module_is_called_unchanged():
    policy = TensorDictModule(lambda x: x, in_keys=["observation"], out_keys=["action"])

    assert as_policy(policy, CountingEnv()) is policy


def annotated(step: TensorDictBase) -> TensorDictBase:
    return step.set("action", ACTION)


@pytest.mark.parametrize(
    "policy",
    [
        lambda tensordict: tensordict.set("action", ACTION),
        lambda td: td.set("action", ACTION),
        lambda data: data.set("action", ACTION),
        annotated,
    ],
)
def test_a_callable_on_data_is_known_by_its_parameter(policy):
    assert CountingEnv().rollout(2, policy)["action"].equal(ACTION.expand(2, 3))


def test_a_callable_on_the_observation_returns_the_action():
    seen = []

    def policy(observation):
        seen.append(observation.item())
        return ACTION

    for env in (CountingEnv(), ArrayCountingEnv()):
        assert env.rollout(3, policy)["action"].equal(ACTION.expand(3, 3))
    assert seen == [0, 1, 2, 0, 1, 2]


def test_a_network_is_a_policy():
    data = CountingEnv(action="continuous").rollout(2, torch.nn.Linear(1, 2))

    assert data["action"].shape == (2, 2)


def test_observations_come_in_the_order_of_the_spec():
    seen = []
    TwoObservations().rollout(2, lambda first, second: seen.append((first.item(), second.item())) or ACTION)

    assert seen == [(0, 0), (10, 1)]


def test_a_group_of_observations_is_known_by_its_name():
    env = NestedCountingEnv()
    action = env.rand_action()["agents", "action"]

    data = env.rollout(2, lambda agents: action if agents.batch_size else None)

    assert data["agents", "action"].equal(torch.stack([action, action], 0))


def test_a_callable_on_the_observation_may_return_a_tensordict():
    data = CountingEnv().rollout(2, lambda observation: TensorDict(action=ACTION, twice=observation * 2))

    assert data["action"].equal(ACTION.expand(2, 3))
    assert data["twice"].equal(data["observation"] * 2)


def test_a_compiled_module_is_known_by_what_was_compiled():
    module = torch.nn.Linear(1, 2)
    policy = TensorDictModule(module, in_keys=["observation"], out_keys=["action"])

    data = CountingEnv(action="continuous").rollout(2, torch.compile(policy, backend="eager"))
    assert data["action"].equal(module(data["observation"]))

    data = CountingEnv(action="continuous").rollout(2, torch.compile(module, backend="eager"))
    assert data["action"].equal(module(data["observation"]))


def test_parameters_named_like_observations_choose_them():
    seen = []
    TwoObservations().rollout(2, lambda beta, alpha: seen.append((beta.item(), alpha.item())) or ACTION)
    TwoObservations().rollout(2, lambda beta: seen.append(beta.item()) or ACTION)

    assert seen == [(0, 0), (10, 1), 0, 10]


def test_several_actions_are_a_tuple():
    env = MultiKeyCountingEnv()
    root, arm = env.rand_action()["action"], ACTION

    data = env.rollout(2, lambda a, b, c: (root, arm, arm))
    assert data["left", "action"].equal(ACTION.expand(2, 3))

    with pytest.raises(PolicyError, match="returned 1 values for the actions"):
        env.rollout(2, lambda a, b, c: root)


def test_parameters_that_match_nothing_are_refused():
    with pytest.raises(PolicyError, match=r"takes \['x', 'y', 'z'\].*TensorDictModule"):
        CountingEnv().rollout(2, lambda x, y, z: ACTION)


@pytest.mark.parametrize(
    ("policy", "text"),
    [(3, "callable, found int"), (torch.nn.Module, r"found the class Module: make one, Module\(\.\.\.\)")],
)
def test_an_uncallable_policy_is_refused(policy, text):
    with pytest.raises(PolicyError, match=text):
        CountingEnv().rollout(2, policy)


def test_a_trusted_policy_is_called_unchanged():
    def anything(whatever):
        return whatever.set("action", ACTION)

    assert CountingEnv().rollout(2, anything, trust_policy=True).batch_size == (2,)


def test_the_random_policy_follows_the_shape_of_the_data():
    leaf = RandomPolicy(OneHot(4))
    composite = RandomPolicy(Composite({("arm", "action"): Bounded(-1, 1, (2,))}))

    assert leaf(TensorDict({}, [5, 2]))["action"].shape == (5, 2, 4)
    assert leaf(TensorDict({}, []))["action"].shape == (4,)
    assert composite(TensorDict({}, [3]))["arm", "action"].shape == (3, 2)


def test_the_random_policy_of_a_batched_spec_keeps_its_shape():
    """A random policy does not add the batch size to a spec that has it already."""
    env = CountingEnv(batch_size=(3,))
    policy = RandomPolicy(env.action_spec)

    assert policy(env.reset())["action"].shape == (3, 3)
    assert env.rollout(2, policy).batch_size == (3, 2)


def test_random_actions_follow_an_unlocked_batch():
    assert StatelessCountingEnv().rand_action(TensorDict({}, [2, 3]))["action"].shape == (2, 3, 3)


def test_a_random_policy_takes_the_spec_of_its_first_env():
    """A random policy without a spec takes the actions of its first environment."""
    policy = RandomPolicy()
    with pytest.raises(PolicyError, match="has no action spec"):
        policy(TensorDict())

    assert CountingEnv().rollout(2, policy)["action"].shape == (2, 3)
    assert policy.action_spec == CountingEnv().full_action_spec
    assert MultiKeyCountingEnv().rollout(1, RandomPolicy())["left", "action"].shape == (1, 3)


@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors of older Pythons take no notes")
def test_an_error_of_a_policy_names_its_input_and_missing_keys(make):
    policy = TensorDictModule(torch.nn.Linear(1, 3), in_keys=["observatoin"], out_keys=["action"])

    with pytest.raises(KeyError) as caught:
        make().rollout(2, policy)

    (note,) = caught.value.__notes__
    assert note.startswith("in the policy TensorDictModule, which was called with ")
    assert "'observation' [" in note
    assert note.endswith("its in_keys ['observatoin'] are missing: did you mean 'observation'?")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors of older Pythons take no notes")
def test_an_error_names_the_function_that_raised():
    def greedy(observation):
        return observation @ torch.ones(7)

    with pytest.raises(RuntimeError) as caught:
        ArrayCountingEnv().rollout(2, greedy)

    (note,) = caught.value.__notes__
    assert note.startswith("in the policy greedy, which was called with ")
