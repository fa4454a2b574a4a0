"""Weight updates reach all copies of a policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from steppe import Collector
from steppe.errors import PolicyError
from steppe_testing import CountingEnv


def make(policy: Any) -> Collector:
    return Collector(lambda: CountingEnv(action="continuous"), policy, frames_per_batch=3)


@pytest.mark.parametrize("form", [lambda net: net, TensorDict.from_module, lambda net: net.state_dict()])
@pytest.mark.parametrize("name", ["policy_or_weights", "weights", "policy"])
def test_weights_of_any_form_reach_the_policy_that_acts(form: Any, name: str) -> None:
    acting, learning = nn.Linear(1, 2), nn.Linear(1, 2)
    with make(acting) as collector:
        before = next(collector)["action"]
        collector.update_policy_weights_(**{name: form(learning)})
        assert torch.equal(acting.weight, learning.weight)
        assert torch.equal(acting.bias, learning.bias)
        after = next(collector)
    with torch.no_grad():
        assert torch.equal(after["action"], learning(after["observation"]))
    assert not torch.equal(before, after["action"])
    assert acting.weight is not learning.weight


def test_updating_the_acting_policy_itself_only_counts() -> None:
    net = nn.Linear(1, 2)
    with make(net) as collector:
        collector.update_policy_weights_()
        collector.update_policy_weights_(net)
        assert collector.policy is net
        assert collector.policy_version == 2


def test_random_actions_take_no_weights() -> None:
    with make(None) as collector:
        collector.update_policy_weights_()
        with pytest.raises(PolicyError, match="without parameters"):
            collector.update_policy_weights_(nn.Linear(1, 2))
        assert collector.policy_version == 1


@pytest.mark.parametrize(
    "wrong", [nn.Linear(3, 2), TensorDict.from_module(nn.Linear(3, 2)), {"weight": torch.zeros(1)}]
)
def test_weights_that_do_not_fit_are_refused_and_not_counted(wrong: Any) -> None:
    with make(nn.Linear(1, 2)) as collector:
        with pytest.raises(PolicyError, match="do not fit"):
            collector.update_policy_weights_(wrong)
        assert collector.policy_version == 0


def test_invalid_weights_are_refused() -> None:
    with make(nn.Linear(1, 2)) as collector:
        with pytest.raises(PolicyError, match="takes a module, a TensorDict of parameters or a state dict, found int"):
            collector.update_policy_weights_(3)
        with pytest.raises(TypeError, match="one of"):
            collector.update_policy_weights_(nn.Linear(1, 2), weights={})
