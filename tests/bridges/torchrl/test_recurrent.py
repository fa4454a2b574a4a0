"""Recurrent modules of TorchRL keep their memory in our data."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from steppe import Collector, EnvBase, InitTracker, SerialEnv, TransformedEnv
from steppe.errors import SpecError
from steppe_testing import ArrayCountingEnv

modules = pytest.importorskip("torchrl.modules")
envs = pytest.importorskip("torchrl.envs")


def policy_of(lstm: nn.Module) -> TensorDictSequential:
    scores = TensorDictModule(nn.Linear(4, 3), in_keys=["features"], out_keys=["action_value"])
    choice = modules.QValueModule(action_space="one_hot")
    return TensorDictSequential(lstm, scores, choice)


def make_lstm() -> nn.Module:
    return modules.LSTMModule(input_size=1, hidden_size=4, in_key="observation", out_key="features")


def check(data) -> None:
    hidden, began = data["recurrent_state_h"].flatten(2), data["is_init"].squeeze(-1)
    assert began.sum() > began.shape[0], "some episodes begin within the data"
    assert not hidden[began].any(), "an episode begins with an empty memory"
    assert hidden[~began].abs().sum(-1).all(), "and goes on with what the policy wrote"
    following = data["next", "recurrent_state_h"].flatten(2)
    assert torch.equal(torch.where(began[:, 1:, None], 0, following[:, :-1]), hidden[:, 1:])


@pytest.mark.parametrize(
    "make", [lambda: SerialEnv(2, lambda: ArrayCountingEnv(4)), lambda: ArrayCountingEnv(4)], ids=["batch", "one"]
)
def test_the_primer_that_a_module_makes_is_appended(make):
    lstm = make_lstm()
    env: EnvBase = TransformedEnv(make(), InitTracker())
    env = env.append_transform(lstm.make_tensordict_primer())
    data = env.rollout(20, policy_of(lstm), break_when_any_done=False)

    check(data.reshape(-1, 20))


def test_a_collector_appends_what_the_policy_needs():
    make = lambda: SerialEnv(2, lambda: ArrayCountingEnv(4))  # noqa: E731
    policy = policy_of(make_lstm())
    with Collector(make, policy, frames_per_batch=40, auto_register_policy_transforms=True) as collector:
        check(next(collector))


def test_a_transform_of_torchrl_is_refused_with_our_import():
    with pytest.raises(SpecError, match=r"This RewardSum is a class of TorchRL.*from steppe import RewardSum"):
        TransformedEnv(ArrayCountingEnv(), envs.RewardSum())
