"""Actions of a rollout: policies, passed actions, callbacks."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe.errors import ActionError, SpecError
from steppe_testing import ArrayCountingEnv, CountingEnv, MultiKeyCountingEnv, NestedCountingEnv
from tests.core.envs.counting import BOTH, counts, ones


@BOTH
def test_a_policy_acts(make):
    assert counts(make().rollout(3, ones), ("next", "reward")) == [1, 1, 1]


@BOTH
def test_a_module_may_write_more_than_the_action(make):
    policy = TensorDictModule(
        lambda obs: (torch.tensor([False, True, False]), obs * 2), in_keys=["observation"], out_keys=["action", "twice"]
    )
    data = make().rollout(4, policy)

    assert torch.equal(data["twice"], data["observation"] * 2)


@BOTH
def test_gradients_reach_through_what_the_policy_wrote(make):
    net = torch.nn.Linear(1, 2)
    data = make(action="continuous").rollout(3, TensorDictModule(net, in_keys=["observation"], out_keys=["action"]))
    data["action"].sum().backward()

    assert net.bias.grad.tolist() == [3, 3]


@BOTH
def test_a_callback_sees_every_step(make):
    seen = []
    make().rollout(4, callback=lambda env, td: seen.append(td["next", "observation"].item()))

    assert seen == [1, 2, 3, 4]


@BOTH
@pytest.mark.parametrize("as_td", [False, True])
def test_given_actions_are_played(make, as_td):
    env = make(10)
    actions = torch.eye(3, dtype=torch.bool)[torch.tensor([2, 0, 1, 1])]
    given = list(actions) if not as_td else [TensorDict({"action": a}) for a in actions]
    data = env.rollout(4, actions=given)

    assert torch.equal(data["action"], actions)
    assert counts(data, ("next", "reward")) == [2, 0, 1, 1]


@BOTH
def test_a_generator_of_actions_is_read_as_far_as_needed(make):
    def stream():
        for i in range(3):
            yield torch.eye(3, dtype=torch.bool)[i]

    assert counts(make(10).rollout(3, actions=stream()), ("next", "reward")) == [0, 1, 2]


@BOTH
def test_too_few_actions_are_an_error(make):
    with pytest.raises(SpecError, match="fewer entries than steps"):
        make(10).rollout(4, actions=iter([torch.tensor([True, False, False])] * 3))
    with pytest.raises(SpecError, match="fewer entries than steps"):
        make(10).rollout(4, actions=[])


@BOTH
def test_a_list_of_actions_limits_the_steps(make):
    actions = torch.eye(3, dtype=torch.bool)

    assert counts(make(10).rollout(100, actions=actions), ("next", "reward")) == [0, 1, 2]
    assert make(2).rollout(100, actions=list(actions), break_when_any_done=False).shape == (3,)


def test_actions_of_a_group_are_played():
    env = NestedCountingEnv(max_steps=10)
    actions = [env.rand_action().select(("agents", "action")) for _ in range(3)]

    data = env.rollout(5, actions=[action["agents"] for action in actions])

    assert data["agents", "action"].equal(torch.stack(actions)["agents", "action"])


@BOTH
def test_wrong_given_actions_are_an_error(make):
    with pytest.raises(ActionError, match="must be one-hot"):
        make().rollout(2, actions=torch.ones(2, 3))


def test_a_policy_and_actions_contradict_each_other():
    with pytest.raises(TypeError, match="not both"):
        CountingEnv().rollout(2, ones, actions=[])


@BOTH
def test_data_is_cast_to_the_policys_device_and_back(make):
    seen = []

    class OnCpu(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, tensordict):
            seen.append(tensordict.device)
            return ones(tensordict)

    data = make(device="cpu").rollout(2, OnCpu(), auto_cast_to_device=True)
    assert seen == [torch.device("cpu")] * 2
    assert data.device == torch.device("cpu")


@pytest.mark.parametrize("on_arrays", [True, False])
def test_a_policy_finds_what_it_wrote_for_the_next_step(on_arrays: bool) -> None:
    def policy(tensordict):
        before = tensordict.get("state", torch.zeros(1))
        tensordict["state"] = before
        tensordict["action"] = env.full_action_spec.rand()["action"]
        tensordict["next", "state"] = before + 1
        return tensordict

    env = ArrayCountingEnv(max_steps=100)
    if not on_arrays:
        env._step = env._step

    data = env.rollout(4, policy)

    assert (env.row_writer is not None) == on_arrays
    assert data["state"].flatten().tolist() == [0, 1, 2, 3]
    assert data["next", "state"].flatten().tolist() == [1, 2, 3, 4]


def test_several_actions_are_given_as_tensordicts():
    env = MultiKeyCountingEnv()

    with pytest.raises(SpecError, match=r"actions= must give TensorDicts with .*, found Tensor"):
        env.rollout(3, actions=torch.zeros(3, 1))


def test_a_policy_may_begin_a_rollout_of_the_same_environment():
    env = ArrayCountingEnv(3)
    inner = []

    def looks_ahead(td):
        if not inner:
            inner.append(env.rollout(2, ones))
        return ones(td)

    data = env.rollout(3, looks_ahead)

    assert counts(inner[0]) == [0, 1]
    assert counts(data)[0] == 0
    assert counts(env.rollout(3, ones)) == [0, 1, 2]
