"""DTypeCastTransform and DoubleToFloat: casts of entries to another dtype."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import (
    Compose,
    DoubleToFloat,
    DTypeCastTransform,
    RewardSum,
    StepCounter,
    TransformedEnv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


def with_double_actions(env):
    """The environment acts on float64."""
    env.action_spec = Bounded(-1.0, 1.0, shape=(2,), dtype=torch.float64)
    return env


@BASES
def test_every_double_is_cast(make):
    env = TransformedEnv(make(3, dtype=torch.float64), DoubleToFloat())

    assert env.observation_spec["observation"].dtype is torch.float32
    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)
    assert data["observation"].dtype is data["next", "observation"].dtype is torch.float32
    assert data["observation"].squeeze(-1).tolist() == [0, 1, 2, 0]


def test_without_doubles_a_cast_does_nothing():
    env = TransformedEnv(CountingEnv(3), DoubleToFloat())
    env.reset()

    pipeline = env._compiled
    assert (pipeline.steps, pipeline.resets, pipeline.inverses) == ([], [], [])


@BASES
def test_actions_are_cast_back(make):
    env = TransformedEnv(with_double_actions(make(3, action="continuous")), DoubleToFloat())

    assert env.action_spec.dtype is torch.float32
    env.check_env_specs()
    data = env.rollout(3)
    assert data["action"].dtype is torch.float32
    assert torch.allclose(data["next", "reward"], data["action"].sum(-1, keepdim=True))


def test_only_the_keys_that_are_given():
    env = TransformedEnv(
        with_double_actions(CountingEnv(3, action="continuous", dtype=torch.float64)),
        DoubleToFloat(in_keys=[], in_keys_inv=["action"]),
    )

    assert env.observation_spec["observation"].dtype is torch.float64
    assert env.action_spec.dtype is torch.float32
    env.check_env_specs()


def test_the_action_may_have_another_name():
    env = TransformedEnv(
        with_double_actions(CountingEnv(3, action="continuous")),
        DoubleToFloat(in_keys_inv=["action"], out_keys_inv=["push"]),
    )

    assert env.action_keys == ["push"]
    env.check_env_specs()


def test_the_cast_may_go_to_another_key():
    env = TransformedEnv(
        CountingEnv(3, dtype=torch.float64), DoubleToFloat(in_keys=["observation"], out_keys=["single"])
    )

    env.check_env_specs()
    assert env.observation_spec["observation"].dtype is torch.float64
    assert env.rollout(2)["single"].dtype is torch.float32


@BASES
def test_states_are_cast_both_ways(make):
    env = TransformedEnv(make(3, dtype=torch.float64), Compose(RewardSum(), StepCounter(2), DoubleToFloat()))
    env.check_env_specs()
    assert env.rollout(4, break_when_any_done=False)["step_count"].dtype is torch.int64


def test_a_sum_of_doubles_is_kept_in_doubles():
    base = CountingEnv(30, action="continuous")
    base.reward_spec = Unbounded((1,), dtype=torch.float64)
    base_step = base._step
    base._step = lambda td: base_step(td).apply(
        lambda value: value.double() * 0.1 if value.dtype is torch.float32 else value
    )
    base.observation_spec = Composite(observation=Unbounded((1,), dtype=torch.float64))
    base_reset = base._reset
    base._reset = lambda td=None: base_reset(td).apply(
        lambda value: value.double() if value.is_floating_point() else value
    )
    env = TransformedEnv(base, Compose(DoubleToFloat(), RewardSum()))

    assert env.rollout(20)["next", "episode_reward"].dtype is torch.float32


def test_other_dtypes():
    env = TransformedEnv(CountingEnv(3, dtype=torch.int64), DTypeCastTransform(torch.int64, torch.float32))

    env.check_env_specs()
    assert env.rollout(3)["observation"].dtype is torch.float32


def test_stored_data_is_cast():
    data = TensorDict(a=torch.ones(2, dtype=torch.float64), next=TensorDict(b=torch.ones(2, dtype=torch.float64)))
    data["c"] = torch.ones(2, dtype=torch.int64)

    out = DoubleToFloat()(data)

    assert (out["a"].dtype, out["next", "b"].dtype, out["c"].dtype) == (torch.float32, torch.float32, torch.int64)
    assert DoubleToFloat().inv(out)["a"].dtype is torch.float64


def test_gradients_pass_through_a_cast():
    value = torch.ones(2, dtype=torch.float64, requires_grad=True)
    DoubleToFloat()(TensorDict(a=value))["a"].sum().backward()

    assert value.grad.tolist() == [1, 1]


def test_specs_are_cast_without_an_environment():
    cast = DoubleToFloat()

    observation = cast.transform_observation_spec(Composite(a=Unbounded((2,), dtype=torch.float64), b=Unbounded((1,))))
    assert (observation["a"].dtype, observation["b"].dtype) == (torch.float32, torch.float32)
    assert (
        cast.transform_reward_spec(Composite(reward=Unbounded((1,), dtype=torch.float64)))["reward"].dtype
        == torch.float32
    )
    action = cast.transform_action_spec(Composite(action=Bounded(-1, 1, (2,), dtype=torch.float64)))["action"]
    assert action.dtype == torch.float32
    assert action.space.high.tolist() == [1, 1]
    assert cast.transform_state_spec(Composite(s=Unbounded((1,), dtype=torch.float64)))["s"].dtype == torch.float32
    named = DTypeCastTransform(torch.int64, torch.int32, in_keys=["a"])
    both = named.transform_observation_spec(Composite(a=Unbounded((1,), dtype=torch.int64), b=Unbounded((1,))))
    assert both["a"].dtype == torch.int32


def test_a_subclass_may_change_what_a_cast_does():
    class Rounded(DoubleToFloat):
        def _apply_transform(self, value):
            return super()._apply_transform(value).round()

    data = TransformedEnv(ArrayCountingEnv(4, start=0.25, dtype=torch.float64), Rounded()).rollout(3)

    assert data["next", "observation"].flatten().tolist() == [1, 2, 3]
    assert data["next", "observation"].dtype == torch.float32
