"""DTypeCastTransform, DoubleToFloat and DeviceCastTransform."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import (
    Compose,
    DeviceCastTransform,
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


def test_it_costs_nothing_where_there_is_no_double():
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


def test_data_that_is_there_is_cast():
    data = TensorDict(a=torch.ones(2, dtype=torch.float64), next=TensorDict(b=torch.ones(2, dtype=torch.float64)))
    data["c"] = torch.ones(2, dtype=torch.int64)

    out = DoubleToFloat()(data)

    assert (out["a"].dtype, out["next", "b"].dtype, out["c"].dtype) == (torch.float32, torch.float32, torch.int64)
    assert DoubleToFloat().inv(out)["a"].dtype is torch.float64


def test_gradients_pass_through_a_cast():
    value = torch.ones(2, dtype=torch.float64, requires_grad=True)
    DoubleToFloat()(TensorDict(a=value))["a"].sum().backward()

    assert value.grad.tolist() == [1, 1]


# -- devices -----------------------------------------------------------------------------------------------------------


def test_everything_is_on_the_device():
    env = TransformedEnv(
        CountingEnv(3, batch_size=(2,)), Compose(StepCounter(), DeviceCastTransform("cpu"), RewardSum())
    )

    assert env.device == torch.device("cpu")
    assert env.base_env.device is None
    assert env.observation_spec.device == torch.device("cpu")
    assert env.reset().device == torch.device("cpu")
    env.check_env_specs()
    assert env.rollout(4, break_when_any_done=False)["next"].device == torch.device("cpu")


def test_keys_on_a_device_leave_the_environment_without_one():
    env = TransformedEnv(CountingEnv(3, device="cpu"), DeviceCastTransform("cpu", in_keys=["observation"]))

    assert env.device is None
    env.check_env_specs()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@BASES
def test_data_is_moved_to_the_gpu_and_back(make):
    env = TransformedEnv(
        make(3), Compose(StepCounter(2), RewardSum(), DeviceCastTransform("cuda"), StepCounter(step_count_key="t"))
    )

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)

    assert data.device.type == "cuda"
    assert data["step_count"].squeeze(-1).tolist() == data["t"].squeeze(-1).tolist() == [0, 1, 0, 1, 0]
