"""Base classes of transforms that need their environment."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.errors import NotSupported, StateError
from steppe.transforms import PlannedTransform, SteppingTransform, TransformedEnv
from steppe.transforms.compiled.transform_hooks import Hooks
from steppe_testing import ArrayCountingEnv, CountingEnv


class Repeat(SteppingTransform):
    """Steps its environment a second time."""

    def _step(self, tensordict, next_tensordict):
        return self.env.step(
            self.env.step_mdp(tensordict.copy().set("next", next_tensordict)).update(tensordict.select("action"))
        )["next"]


class Doubled(PlannedTransform):
    """Doubles the rewards that the specs of the environment have."""

    plans = 0

    def hooks(self, specs):
        self.plans += 1
        keys = list(specs.reward.keys(include_nested=True, leaves_only=True))

        def step(root, following):
            for key in keys:
                following.set(key, following.get(key) * 2)
            return following

        return Hooks(step=step)


@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_a_transform_steps_the_environment_before_it(make):
    env = TransformedEnv(make(9), Repeat())

    counts = env.rollout(3)["next", "observation"].flatten().tolist()

    assert counts == [2, 4, 6]


def test_a_stepping_transform_without_environment_is_an_error():
    with pytest.raises(StateError, match=r"Repeat steps its environment, and belongs to none\..*append_transform"):
        _ = Repeat().env


def test_a_stepping_transform_refuses_stored_data():
    data = CountingEnv(9).rollout(3)

    with pytest.raises(NotSupported, match="steps its environment"):
        Repeat()(data)


@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_hooks_follow_from_the_specs_of_the_environment(make):
    env, base = TransformedEnv(make(9), Doubled()), make(9)
    env.set_seed(3)
    base.set_seed(3)

    rewards = env.rollout(8)["next", "reward"]

    assert rewards.any()
    assert torch.equal(rewards, base.rollout(8)["next", "reward"] * 2)


def test_hooks_follow_from_stored_data_without_environment():
    data = CountingEnv(9).rollout(8)
    expected = data["next", "reward"] * 2

    assert torch.equal(Doubled()(data)["next", "reward"], expected)


def test_methods_of_a_planned_transform_make_its_hooks_once():
    transform = Doubled()
    env = TransformedEnv(CountingEnv(9), transform)
    env.rollout(2)
    plans = transform.plans

    following = TensorDict({"reward": [3.0]})
    for _ in range(3):
        following = transform._step(TensorDict(), following)

    assert following["reward"].tolist() == [24.0]
    assert transform.plans <= plans + 1


def test_a_planned_transform_without_hooks_names_the_method():
    class Empty(PlannedTransform):
        pass

    with pytest.raises(NotImplementedError, match=r"Empty does not define hooks\(specs\)"):
        TransformedEnv(CountingEnv(9), Empty()).rollout(1)
