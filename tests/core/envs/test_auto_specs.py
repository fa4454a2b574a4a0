"""Specs read off data, and dynamic specs as the guide of TorchRL shows them."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.envs import EnvBase, check_env_specs
from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Composite, NonTensor, Unbounded
from steppe_testing import TextCountingEnv


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
    env = NoSpecs().auto_specs_(act)

    assert env.full_observation_spec["position"] == Unbounded((2,))
    assert env.full_observation_spec["grows"].shape == (-1,)
    assert env.action_spec == Unbounded((3,))
    assert env.done_keys == ["done", "terminated"]
    check_env_specs(env)


def test_specs_read_off_data_may_be_text():
    env = TextCountingEnv()
    action = env.rand_action()["action"]
    env.auto_specs_(lambda td: td.set("action", action))

    assert isinstance(env.full_observation_spec["text"], NonTensor)


def test_reading_specs_names_keys_that_are_not_there():
    with pytest.raises(SpecError, match="no action at"):
        NoSpecs().auto_specs_(lambda td: td)
    with pytest.raises(SpecError, match="no reward at"):
        NoSpecs().auto_specs_(act, reward_key="prize")


class EnvWithDynamicSpec(EnvBase):
    def __init__(self, max_count=5):
        super().__init__(batch_size=())
        self.observation_spec = Composite(
            observation=Unbounded(shape=(3, -1, 2)),
        )
        self.action_spec = Bounded(low=-1, high=1, shape=(2,))
        self.full_done_spec = Composite(
            done=Binary(1, shape=(1,), dtype=torch.bool),
            terminated=Binary(1, shape=(1,), dtype=torch.bool),
            truncated=Binary(1, shape=(1,), dtype=torch.bool),
        )
        self.reward_spec = Unbounded((1,), dtype=torch.float)
        self.count = 0
        self.max_count = max_count

    def _reset(self, tensordict=None):
        self.count = 0
        data = TensorDict(
            {
                "observation": torch.full(
                    (3, self.count + 1, 2),
                    self.count,
                    dtype=self.observation_spec["observation"].dtype,
                )
            }
        )
        data.update(self.done_spec.zero())
        return data

    def _step(self, tensordict):
        self.count += 1
        done = self.count >= self.max_count
        observation = TensorDict(
            {
                "observation": torch.full(
                    (3, self.count + 1, 2),
                    self.count,
                    dtype=self.observation_spec["observation"].dtype,
                )
            }
        )
        done = self.full_done_spec.zero() | done
        reward = self.full_reward_spec.zero()
        return observation.update(done).update(reward)

    def _set_seed(self, seed):
        self.manual_seed = seed
        return seed


def test_the_example_of_a_dynamic_spec_runs_as_written():
    data = EnvWithDynamicSpec().rollout(5, return_contiguous=False)

    assert data.batch_size == (5,)
    assert [step["next", "observation"].shape for step in data.unbind(0)] == [(3, n, 2) for n in range(2, 7)]
    assert data["next", "done"].squeeze(-1).tolist() == [False] * 4 + [True]
    assert data["action"].shape == (5, 2)
    check_env_specs(EnvWithDynamicSpec())
