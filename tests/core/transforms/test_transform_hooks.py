"""The functions of a transform in one environment."""

from __future__ import annotations

import pytest
import torch

from steppe.specs import Unbounded
from steppe.transforms import (
    Compose,
    Transform,
    TransformedEnv,
    apply_to_composite_inv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

BOTH = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


class Doubled(Transform):
    """Twice the value."""

    def _apply_transform(self, value):
        return 2 * value


class Halved(Transform):
    """The caller gives twice the action."""

    def _inv_apply_transform(self, value):
        return value / 2

    @apply_to_composite_inv
    def transform_action_spec(self, spec):
        return Unbounded(spec.shape, dtype=spec.dtype)


@BOTH
def test_an_entry_is_transformed_after_each_step_and_each_reset(make):
    env = TransformedEnv(make(3, start=1), Doubled(["observation"]))

    data = env.rollout(5, break_when_any_done=False)

    assert data["observation"].squeeze(-1).tolist() == [2, 4, 6, 2, 4]
    assert data["next", "observation"].squeeze(-1).tolist() == [4, 6, 8, 4, 6]


def test_a_reward_is_transformed_after_a_step_only():
    env = TransformedEnv(CountingEnv(3), Doubled(["reward"]))

    data = env.rollout(3, actions=torch.eye(3, dtype=torch.bool))

    assert data["next", "reward"].squeeze(-1).tolist() == [0, 2, 4]
    assert "reward" not in data.keys()


def test_call_and_reset_may_be_written_instead():
    class Both(Transform):
        def _call(self, next_tensordict):
            return next_tensordict.set("kind", torch.zeros(1))

        def _reset(self, tensordict, tensordict_reset):
            return tensordict_reset.set("kind", torch.ones(1))

        def transform_observation_spec(self, observation_spec):
            observation_spec["kind"] = Unbounded((1,))
            return observation_spec

    data = TransformedEnv(CountingEnv(2), Both()).rollout(4, break_when_any_done=False)

    assert data["kind"].squeeze(-1).tolist() == [1, 0, 1, 0]


def test_a_step_sees_the_root_that_it_began_from():
    class Gain(Transform):
        def _step(self, tensordict, next_tensordict):
            return next_tensordict.set("gain", next_tensordict["observation"] - tensordict["observation"])

        def _reset(self, tensordict, tensordict_reset):
            return tensordict_reset.set("gain", torch.zeros(1))

        def transform_observation_spec(self, observation_spec):
            observation_spec["gain"] = Unbounded((1,))
            return observation_spec

    data = TransformedEnv(CountingEnv(2), Gain()).rollout(4, break_when_any_done=False)

    assert data["next", "gain"].unique().tolist() == [1]


def test_each_transform_sees_the_root_of_its_own_level():
    """In a step, a transform sees the action before the inverses of inner transforms."""
    seen = {}

    class Watch(Transform):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def _step(self, tensordict, next_tensordict):
            seen[self.name] = tensordict["action"].tolist()
            return next_tensordict

    first, second = Watch("inner"), Watch("outer")
    env = TransformedEnv(CountingEnv(2, action="continuous"), Compose(first, Halved(in_keys_inv=["action"]), second))
    env.step(env.reset().set("action", torch.tensor([2.0, 4.0])))

    assert seen == {"inner": [1.0, 2.0], "outer": [2.0, 4.0]}
