"""Transforms that a policy needs are appended."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from steppe import (
    SerialEnv,
    StepCounter,
    TensorDictPrimer,
    TransformedEnv,
    Unbounded,
)
from steppe_testing import ArrayCountingEnv, CountingEnv


class Memory(nn.Module):
    """A recurrent part, which offers a primer for its memory."""

    def forward(self, observation, hidden):
        return hidden + observation, hidden + 1

    def make_tensordict_primer(self):
        return TensorDictPrimer(hidden=Unbounded((1,)), default_value=5.0)


def recurrent():
    act = TensorDictModule(lambda: torch.tensor([True, False, False]), in_keys=[], out_keys=["action"])
    return TensorDictSequential(
        TensorDictModule(Memory(), in_keys=["observation", "hidden"], out_keys=["sum", ("next", "hidden")]), act
    )


@pytest.mark.parametrize(
    "make",
    [
        CountingEnv,
        ArrayCountingEnv,
        lambda policy: TransformedEnv(CountingEnv(), StepCounter(), policy=policy),
        lambda policy: SerialEnv(2, CountingEnv, policy=policy),
    ],
)
def test_an_environment_made_for_a_policy_has_what_that_needs(make):
    env = make(policy=recurrent())
    data = env.rollout(3, recurrent() if not env.batch_size else None)

    assert isinstance(env, TransformedEnv)
    assert data["is_init"].reshape(-1, 3).tolist() == [[True, False, False]] * max(1, env.batch_size.numel())
    assert data["hidden"][..., 0, :].unique().tolist() == [5]
    if not env.batch_size:
        assert data["hidden"].flatten().tolist() == [5, 6, 7]


def test_a_policys_primer_is_appended_only_once():
    env = CountingEnv(policy=recurrent())

    assert len(TransformedEnv(env, policy=recurrent()).transform) == len(env.transform) == 2
    assert type(CountingEnv(policy=lambda td: td)) is CountingEnv
