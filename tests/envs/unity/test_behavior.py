"""The agents of a behavior keep their places, and what they decided and earned."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mlagents_envs")

from mlagents_envs.base_env import ActionSpec, BehaviorSpec, DecisionSteps, TerminalSteps

from steppe.errors import NotSupported
from steppe_unity.agent_group import AgentGroup
from steppe_unity.behavior import Behavior
from tests.envs.unity.games import sensor

pytestmark = [pytest.mark.library, pytest.mark.matrix]

SPEC = BehaviorSpec([sensor("", (2,))], ActionSpec(1, (3, 2)))


def decisions(numbers, values, masks=None):
    """Agents that decide: observation, reward and group reward of each are made of one value."""
    values = np.array(values, np.float32)
    observations = [np.stack([values, -values], 1)]
    ids = np.array(numbers, np.int32)
    return DecisionSteps(observations, values / 10, ids, masks, np.zeros(len(ids), np.int32), values / 100)


def terminals(numbers=(), values=(), interrupted=False):
    values, ids = np.array(values, np.float32), np.array(numbers, np.int32)
    observations, flags = [np.stack([values, -values], 1)], np.full(len(ids), interrupted)
    return TerminalSteps(observations, values / 10, flags, ids, np.zeros(len(ids), np.int32), values / 100)


def three():
    behavior = Behavior("drone", SPEC, [4, 5, 9])
    behavior.begin(decisions([4, 5, 9], [1, 2, 3]))
    return behavior


def observed(behavior):
    return behavior.sensors["observation_0"][:, 0].tolist()


def column(behavior, name):
    return behavior.stepped[name,][:, 0].tolist()


def test_an_agent_that_does_not_decide_keeps_its_observation():
    behavior = three()
    assert not behavior.read(decisions([9, 4], [7, 8]), terminals())

    assert behavior.deciding == [2, 0]
    assert observed(behavior) == [8, 2, 7]
    assert behavior.observed["mask",].tolist() == [True, False, True]
    assert column(behavior, "reward") == pytest.approx([0.8, 0, 0.7])


def test_a_new_number_takes_the_place_of_the_agent_that_ended():
    behavior = three()
    assert behavior.read(decisions([4, 21], [5, 6]), terminals([9], [40]))

    assert observed(behavior) == [5, 2, 6]
    assert behavior.over == [2]
    assert behavior.last[0].tolist() == [[40, -40]]
    assert column(behavior, "reward") == pytest.approx([0.5, 0, 4.0]), "not the reward of the new episode"
    assert column(behavior, "terminated") == [False, False, True]
    assert not behavior.read(decisions([21], [8]), terminals())
    assert observed(behavior) == [5, 2, 8]
    assert not behavior.stepped["done",].any()


def test_an_agent_without_a_new_decision_has_zeros_until_then():
    behavior = three()
    behavior.read(decisions([4, 9], [5, 6]), terminals([5], [40], interrupted=True))

    assert observed(behavior) == [5, 0, 6]
    assert behavior.ended.tolist() == [False, True, False]
    assert column(behavior, "truncated") == [False, True, False]
    assert not behavior.stepped["terminated",].any()


def test_an_agent_that_ends_twice_in_a_step_gets_both_rewards():
    behavior = three()
    behavior.read(decisions([], []), terminals([5, 5], [10, 30]))

    assert column(behavior, "reward") == [0, 4, 0]
    assert column(behavior, "group_reward") == pytest.approx([0, 0.4, 0])


def test_agents_that_do_not_decide_have_masks_of_true():
    behavior = three()
    forbidden = [np.array([[True, False, False]]), np.array([[False, True]])]
    behavior.read(decisions([5], [1], forbidden), terminals())

    assert behavior.observed["action_mask",].tolist() == [[True] * 5, [False, True, True, True, False], [True] * 5]
    behavior.read(decisions([4], [1]), terminals())
    assert behavior.observed["action_mask",].all()


def test_a_new_number_without_a_free_place_is_an_error():
    with pytest.raises(NotSupported, match="agent, number 30, beside the 3"):
        three().read(decisions([4, 5, 9, 30], [1, 2, 3, 4]), terminals())


def test_a_group_has_its_agents_in_its_own_order():
    behavior = three()
    behavior.read(decisions([4, 5, 9], [5, 6, 7]), terminals([5, 9], [40, 50]))
    group = AgentGroup("pair", behavior, [2, 0], one_hot=True)
    out = {("observation", "observation_0"): np.zeros((2, 2)), ("reward",): np.zeros((2, 1))}
    group.write_step(out)

    assert out["observation", "observation_0"].tolist() == [[50, -50], [5, -5]]
    assert out["reward",][:, 0].tolist() == pytest.approx([5.0, 0.5])
    group.write_root({("observation", "observation_0"): out["observation", "observation_0"]})
    assert out["observation", "observation_0"].tolist() == [[7, -7], [5, -5]]
    assert group.ended.tolist() == [True, False]
    group.begin(np.array([True, False]))
    assert behavior.ended.tolist() == [False, True, False]


def test_a_group_sends_the_numbers_of_one_hot_actions():
    group = AgentGroup("pair", three(), [2, 0], one_hot=True)
    actions = {
        ("pair", "continuous_action"): np.array([[[0.5], [-1.0]]]),
        ("pair", "discrete_action"): np.array([[[0, 0, 1, 1, 0], [0, 1, 0, 0, 1]]], bool),
    }
    continuous, discrete = np.zeros((1, 3, 1), np.float32), np.zeros((1, 3, 2), np.int32)
    group.send(actions, continuous, discrete)

    assert continuous.tolist() == [[[-1.0], [0.0], [0.5]]]
    assert discrete.tolist() == [[[1, 1], [0, 0], [2, 0]]]
