"""Environments that assign no reward_spec: the first step shows whether there is a reward."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError


class Bare(EnvBase):
    """A counting environment, with or without a reward."""

    def __init__(self, rewards, declares=False):
        super().__init__()
        self.observation_spec = Unbounded((1,))
        self.action_spec = Bounded(-1, 1, (1,))
        if declares:
            self.reward_spec = Unbounded((1,))
        self.rewards = rewards
        self.resets = 0

    def _reset(self, tensordict=None):
        self.resets += 1
        self.count = torch.rand(1)
        return TensorDict(observation=self.count)

    def _step(self, tensordict):
        self.count = self.count + 1
        reward = {"reward": self.count.clone()} if self.rewards else {}
        return TensorDict(observation=self.count, **reward)

    def _set_seed(self, seed):
        pass


MAKERS = {
    "one": lambda rewards: Bare(rewards),
    "transformed": lambda rewards: TransformedEnv(Bare(rewards), StepCounter()),
    "serial": lambda rewards: SerialEnv(2, lambda: Bare(rewards)),
    "parallel": lambda rewards: ParallelEnv(2, lambda: Bare(rewards)),
    "transformed inside": lambda rewards: SerialEnv(2, lambda: TransformedEnv(Bare(rewards), StepCounter())),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@pytest.mark.parametrize("rewards", [True, False])
def test_data_has_a_reward_if_a_step_returns_one(make, rewards):
    with make(rewards) as env:
        for data in (env.rollout(3), env.rollout(3, break_when_any_done=False)):
            assert ("reward" in data["next"].keys()) is rewards
            assert "reward" not in data.keys()
        assert env.reward_keys == ["reward"] * rewards


@pytest.mark.parametrize("rewards", [True, False])
def test_such_an_environment_passes_its_check(rewards):
    check_env_specs(Bare(rewards))
    check_env_specs(TransformedEnv(Bare(rewards), StepCounter()))


def test_declaring_a_reward_does_not_change_random_numbers():
    """The search for an undeclared reward does not change the random numbers."""

    def first(declares):
        torch.manual_seed(0)
        with SerialEnv(2, lambda: Bare(True, declares)) as env:
            return env.rollout(3)

    assert (first(True) == first(False)).all()


def test_a_reward_that_is_declared_has_to_be_returned():
    with pytest.raises(SpecError, match="no reward at 'reward'"):
        Bare(False, declares=True).rollout(2)


def test_a_reward_may_not_disappear():
    env = Bare(True)
    env.rollout(2)
    env.rewards = False

    with pytest.raises(SpecError, match="no reward at 'reward'"):
        env.rollout(2)


def test_a_declared_reward_needs_no_trial_step():
    env = Bare(True, declares=True)
    env.settle_reward_spec()

    assert env.resets == 0


def test_a_failed_step_leaves_the_reward_spec_unchanged():
    class Stuck(Bare):
        def _step(self, tensordict):
            raise RuntimeError("stuck")

    env = Stuck(True)
    env.settle_reward_spec()

    assert env.reward_keys == ["reward"]
