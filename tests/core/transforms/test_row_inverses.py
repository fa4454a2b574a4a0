"""Inverses of transforms, on rows and on TensorDicts."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.specs import Unbounded
from steppe.transforms import (
    Compose,
    StepCounter,
    Transform,
    TransformedEnv,
    apply_to_composite_inv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv, StatelessCountingEnv

BASES = {"arrays": ArrayCountingEnv, "tensordict": CountingEnv}


EACH_BASE = pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())


class Normed(Transform):
    """A transform that passes actions of length 1 to the environment."""

    def __init__(self):
        super().__init__(in_keys_inv=["action"], out_keys_inv=["action"])

    def _inv_apply_transform(self, action):
        return action / action.norm()

    @apply_to_composite_inv
    def transform_input_spec(self, action_spec):
        return Unbounded(action_spec.shape)


@EACH_BASE
@pytest.mark.parametrize("place", ["alone", "inside"])
def test_an_inverse_is_given_one_action_at_a_time(base, place):
    def make():
        return TransformedEnv(base(9, action="continuous"), Normed())

    env = make() if place == "alone" else SerialEnv(2, make)
    lead = tuple(env.batch_size)
    actions = torch.tensor([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]]).reshape(3, *(1,) * len(lead), 2).expand(3, *lead, 2)

    data = env.rollout(3, actions=list(actions))

    rewards = data["next", "reward"].reshape(-1, 3)
    assert torch.allclose(rewards, torch.tensor([1.4, 1.0, 1.0]))
    assert torch.equal(data["action"].reshape(-1, 3, 2)[0], torch.tensor([[3.0, 4.0], [0.0, 2.0], [5.0, 0.0]]))


class Lagged(Transform):
    """Hands on something from the inverse to the step, and reads the root."""

    def __init__(self):
        super().__init__(in_keys=["observation"], out_keys=["lag"])

    def _inv_call(self, tensordict):
        tensordict.set("memo", tensordict["observation"] * 10)
        return tensordict

    def _step(self, tensordict, next_tensordict):
        gained = next_tensordict["observation"] - tensordict["observation"]
        next_tensordict.set("lag", tensordict["memo"] + gained)
        tensordict.pop("memo")  # of no use to anybody else
        return next_tensordict

    def _reset(self, tensordict, tensordict_reset):
        return tensordict_reset.set("lag", tensordict_reset["observation"] * 0)

    def transform_observation_spec(self, observation_spec):
        observation_spec["lag"] = observation_spec["observation"].clone()
        return observation_spec


@EACH_BASE
def test_entries_of_an_inverse_are_seen_by_its_step_alone(base):
    """A step reads the entries of its inverse; the caller does not see them."""
    env = TransformedEnv(base(9), Lagged())
    env.check_env_specs()
    td = env.step(env.rand_action(env.reset()))

    assert "memo" not in td.keys()
    assert env.rollout(3)["next", "lag"].flatten().tolist() == [1, 11, 21]


class Skipping(Transform):
    """Leaves out every second step, by a mask that only the inverse writes."""

    def _inv_call(self, tensordict):
        return tensordict.set("_step", (tensordict["step_count"] % 2 == 0).squeeze(-1))


@EACH_BASE
def test_an_inverse_may_leave_out_steps_without_declaring_it(base):
    batch = TransformedEnv(SerialEnv(2, lambda: base(9)), Compose(StepCounter(), Skipping()))
    td = batch.reset()
    td["step_count"] = torch.tensor([[0], [1]])

    batch.step(batch.rand_action(td))

    assert td["next", "observation"].flatten().tolist() == [1, 0]
    assert td["next", "step_count"].flatten().tolist() == [1, 1]


class InvertsResets(Transform):
    """Shows and takes the state of its environment one higher."""

    enable_inv_on_reset = True

    def __init__(self):
        super().__init__(["count"], ["count"], ["count"], ["count"])

    def _apply_transform(self, value):
        return value + 1

    def _inv_apply_transform(self, value):
        return value - 1


def test_the_data_of_a_reset_is_inverted_on_request():
    env = TransformedEnv(StatelessCountingEnv(9), InvertsResets())

    root = env.reset(TensorDict(count=torch.tensor([4])), set_state=True)

    assert root["count"].item() == 4
    assert env.step(env.rand_action(root))["next", "count"].item() == 5
