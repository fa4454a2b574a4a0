"""Rewards between two bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError
from steppe_reward import RewardClipping
from steppe_testing import ArrayDataEnv, MultiAgentCountingEnv

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def clipped(value: torch.Tensor, *bounds, **kwargs) -> torch.Tensor:
    return RewardClipping(*bounds, **kwargs)(TensorDict({"reward": value}))["reward"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1,), (3,), (2, 3, 1)])
def test_clipped_rewards_match_numpy(shape, dtype):
    value = (torch.randn(shape) * 3).to(dtype)

    found = clipped(value, -1.0, 0.5)

    assert found.dtype is dtype
    assert found.double().numpy() == pytest.approx(np.clip(value.double().numpy(), -1.0, 0.5))


def test_one_bound_is_enough_and_nan_stays():
    value = torch.tensor([-5.0, 0.0, 5.0, torch.nan])

    assert clipped(value, -1).tolist()[:3] == [-1, 0, 5]
    assert clipped(value, None, 1).tolist()[:3] == [-5, 0, 1]
    assert clipped(value, float("-inf"), 1).tolist()[:3] == [-5, 0, 1]
    assert clipped(value, -1, 1)[3].isnan()


def test_bounds_may_be_tensors_of_one_for_each_objective():
    high = torch.tensor([1.0, 2.0])

    assert clipped(torch.tensor([[5.0, 5.0], [0.0, -5.0]]), -1.0, high).tolist() == [[1, 2], [0, -1]]
    assert clipped(torch.tensor([5.0]), torch.tensor(-1.0), np.float32(1)).tolist() == [1]


def test_whole_numbers_stay_whole():
    value = torch.tensor([-5, 0, 5])

    assert clipped(value, -1.0, 2).tolist() == [-1, 0, 2]
    assert clipped(value, -1.0, 2).dtype is torch.int64


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [
        (Unbounded((1,)), -1.0, 2.0),
        (Bounded(-0.5, 8.0, (1,)), -0.5, 2.0),
        (Bounded(5.0, 8.0, (1,)), 2.0, 2.0),
        (Bounded(-9, 9, (1,), dtype=torch.int64), -1, 2),
    ],
)
def test_the_spec_is_what_is_left_of_the_bounds(spec, low, high):
    env = TransformedEnv(ArrayDataEnv({"observation": Unbounded((2,))}, reward=spec), RewardClipping(-1.0, 2.0))

    assert (env.reward_spec.low.item(), env.reward_spec.high.item()) == (low, high)
    assert env.reward_spec.dtype is spec.dtype
    check_env_specs(env)
    assert env.no_row_writer_reason is None


def test_default_keys_are_the_environments_rewards():
    env = TransformedEnv(MultiAgentCountingEnv(action="continuous"), RewardClipping(-0.1, 0.1))
    check_env_specs(env)

    reward = env.rollout(4)["next", "agents", "reward"]

    assert env.transform.in_keys == [("agents", "reward")]
    leaf = env.full_reward_spec["agents", "reward"]
    assert (leaf.low.min().item(), leaf.high.max().item()) == pytest.approx((-0.1, 0.1))
    assert reward.abs().max() <= 0.1


def test_other_keys_keep_the_reward_of_the_environment():
    base = ArrayDataEnv({"observation": Unbounded((2,))})
    env = TransformedEnv(base, RewardClipping(-0.1, 0.1, in_keys=["reward"], out_keys=["clipped"]))
    check_env_specs(env)

    data = env.rollout(5)["next"]

    assert torch.equal(data["clipped"], data["reward"].clamp(-0.1, 0.1))
    assert "clipped" in env.reward_keys


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((), "expected a bound, found none"),
        ((2, 1), "must not exceed clamp_max, found 2 and 1"),
        (("low",), "must be a number, a tensor or None, found 'low'"),
        ((float("nan"),), "found NaN"),
    ],
)
def test_invalid_bounds_are_refused(bounds, said):
    with pytest.raises(SpecError, match=said):
        RewardClipping(*bounds)


def test_an_unreachable_bound_of_integer_rewards_is_refused():
    base = ArrayDataEnv({"observation": Unbounded((2,))}, reward=Bounded(-9, 9, (1,), dtype=torch.int64))

    with pytest.raises(SpecError, match=r"cannot be clipped to 0\.5.*DTypeCastTransform\(torch\.int64"):
        _ = TransformedEnv(base, RewardClipping(-1, 0.5)).reward_spec


def test_a_missing_key_is_an_error_with_the_existing_keys():
    env = TransformedEnv(ArrayDataEnv({"observation": Unbounded((2,))}), RewardClipping(-1, 1, in_keys=["rewrad"]))

    with pytest.raises(SpecError, match=r"has no entry 'rewrad'. It has \['observation', 'reward'"):
        env.reset()
