"""Specs read off data, and dynamic specs as the guide of TorchRL shows them."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.envs import EnvBase, check_env_specs
from steppe.errors import SpecError
from steppe.specs import NonTensor, Unbounded
from steppe_testing import TextCountingEnv, auto_specs_


class NoSpecs(EnvBase):
    def __init__(self):
        super().__init__()
        self.count = 0

    def _reset(self, tensordict=None, **kwargs):
        self.count = 0
        return TensorDict({"position": torch.zeros(2), "grows": torch.zeros(1)})

    def _step(self, tensordict):
        self.count += 1
        return TensorDict(
            {
                "position": torch.ones(2, dtype=torch.float32),
                "grows": torch.zeros(1 + self.count),
                "reward": torch.ones(1),
                "done": torch.tensor([self.count > 5]),
            }
        )

    def _set_seed(self, seed):
        pass


def act(td):
    return td.set("action", torch.zeros(3))


def test_specs_can_be_read_off_data():
    env = auto_specs_(NoSpecs(), act)

    assert env.full_observation_spec["position"] == Unbounded((2,))
    assert env.full_observation_spec["grows"].shape == (-1,)
    assert env.action_spec == Unbounded((3,))
    assert env.done_keys == ["done", "terminated"]
    check_env_specs(env)


def test_specs_read_off_data_may_be_text():
    env = TextCountingEnv()
    action = env.rand_action()["action"]
    auto_specs_(env, lambda td: td.set("action", action))

    assert isinstance(env.full_observation_spec["text"], NonTensor)


def test_reading_specs_names_keys_that_are_not_there():
    with pytest.raises(SpecError, match="no action at"):
        auto_specs_(NoSpecs(), lambda td: td)
    with pytest.raises(SpecError, match="no reward at"):
        auto_specs_(NoSpecs(), act, reward_key="prize")
