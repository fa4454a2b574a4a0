"""Rewards as zeros and ones, as weighted sums, and for success."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Bounded, SerialEnv, TransformedEnv, Unbounded, check_env_specs
from steppe.errors import SpecError
from steppe.specs import Binary, Composite
from steppe.transforms import Compose, RewardSum
from steppe_reward import BinarizeReward, LineariseRewards, SuccessReward
from steppe_testing import ArrayDataEnv, DataEnv, MultiAgentCountingEnv

OBSERVATION = {"observation": Unbounded((2,))}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_rewards_above_zero_become_one(dtype):
    found = BinarizeReward()(TensorDict({"reward": torch.tensor([[-2], [0], [3]]).to(dtype)}))["reward"]

    assert found.tolist() == [[0], [0], [1]]
    assert found.dtype is torch.int8


def test_binary_rewards_of_groups_have_a_binary_spec():
    env = TransformedEnv(MultiAgentCountingEnv(action="continuous"), BinarizeReward())
    check_env_specs(env)

    assert env.full_reward_spec["agents", "reward"] == Binary(shape=(3, 1), dtype=torch.int8)
    assert set(env.rollout(5)["next", "agents", "reward"].unique().tolist()) <= {0, 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lead", [(), (4,), (2, 3)])
def test_objectives_are_added_up_by_their_weights(lead, dtype):
    reward = torch.randn(*lead, 3, dtype=dtype)

    weighted = LineariseRewards(["reward"], weights=[2.0, -1.0, 0.0])(TensorDict({"reward": reward}, lead))["reward"]
    plain = LineariseRewards(["reward"])(TensorDict({"reward": reward}, lead))["reward"]

    assert torch.allclose(weighted, (2 * reward[..., 0] - reward[..., 1]).unsqueeze(-1))
    assert torch.allclose(plain, (reward[..., 0] + reward[..., 1] + reward[..., 2]).unsqueeze(-1))
    assert weighted.dtype is dtype


def test_the_bounds_of_a_sum_are_the_sums_of_the_bounds():
    spec = Bounded(torch.tensor([-1.0, -2.0, -torch.inf]), torch.tensor([3.0, 4.0, torch.inf]), (3,))
    env = TransformedEnv(ArrayDataEnv(OBSERVATION, reward=spec), LineariseRewards(weights=[2.0, -1.0, 0.0]))
    check_env_specs(env)

    assert (env.reward_spec.low.tolist(), env.reward_spec.high.tolist()) == ([-2 - 4], [6 + 2])
    assert env.no_row_writer_reason is None


def test_the_sum_of_unbounded_objectives_is_unbounded():
    env = TransformedEnv(DataEnv(OBSERVATION, reward=Unbounded((4,), dtype=torch.float64)), LineariseRewards())
    check_env_specs(env)

    assert env.reward_spec == Unbounded((1,), dtype=torch.float64)


def test_groups_of_agents_are_linearised_by_default():
    groups = Composite(
        {name: Composite({"reward": Unbounded((2, 3))}, shape=(2,)) for name in ("hunters", "prey")}, shape=()
    )
    env = TransformedEnv(DataEnv(OBSERVATION, reward=groups), LineariseRewards(weights=[1.0, 1.0, -1.0]))
    check_env_specs(env)

    assert env.rollout(3)["next", "prey", "reward"].shape == (3, 2, 1)
    assert sorted(env.reward_keys) == [("hunters", "reward"), ("prey", "reward")]


def test_weights_can_be_changed_between_steps():
    transform = LineariseRewards(weights=[1.0, 0.0])
    one_and_five = torch.tensor([1.0, 5.0])
    env = TransformedEnv(ArrayDataEnv(OBSERVATION, reward=Bounded(one_and_five, one_and_five)), transform)
    before = env.rollout(2)["next", "reward"]

    transform.weights = [0.0, 1.0]

    assert before.flatten().tolist() == [1, 1]
    assert env.rollout(2)["next", "reward"].flatten().tolist() == [5, 5]
    assert env.reward_spec.low.item() == 5


@pytest.mark.parametrize(
    ("spec", "weights", "said"),
    [
        (Unbounded((3,)), [1.0, 2.0], r"2 weights for a reward of shape \(3,\); pass 3"),
        (Unbounded((3,), dtype=torch.int64), None, "DTypeCastTransform"),
    ],
)
def test_weights_that_do_not_fit_are_refused(spec, weights, said):
    with pytest.raises(SpecError, match=said):
        _ = TransformedEnv(DataEnv(OBSERVATION, reward=spec), LineariseRewards(weights=weights)).reward_spec


def test_a_reward_without_a_dimension_is_refused():
    with pytest.raises(SpecError, match="without a dimension of objectives"):
        LineariseRewards().transform_reward_spec(Composite({"reward": Unbounded(())}))


def test_weights_are_a_vector():
    with pytest.raises(SpecError, match="a vector, one for each objective"):
        LineariseRewards(["reward"], weights=torch.ones(2, 2))


@pytest.mark.parametrize("base", [ArrayDataEnv, DataEnv])
@pytest.mark.parametrize("scale", [10.0, -1.0])
def test_success_is_the_reward_and_no_reset_has_one(base, scale):
    spec = {"success": Binary(shape=(1,), dtype=torch.bool)}
    env = TransformedEnv(base(spec, reward=Unbounded((3,), dtype=torch.float64)), SuccessReward(scale=scale))
    check_env_specs(env)
    env.set_seed(0)

    data = env.rollout(20, break_when_any_done=False)

    assert torch.equal(data["next", "reward"], data["next", "success"].float() * scale)
    assert data["next", "reward"].unique().numel() == 2
    assert (env.reward_spec.low.item(), env.reward_spec.high.item()) == (min(0, scale), max(0, scale))
    assert "reward" not in env.reset().keys()


def test_the_end_of_an_episode_can_be_the_success():
    env = TransformedEnv(
        SerialEnv(2, lambda: ArrayDataEnv(OBSERVATION)), Compose(SuccessReward("terminated"), RewardSum())
    )

    data = env.rollout(7, break_when_any_done=False)

    assert torch.equal(data["next", "reward"], data["next", "terminated"].float())
    assert data["next", "episode_reward"][data["next", "done"]].tolist() == [1.0, 1.0]
    env.close()


def test_success_of_stored_data():
    data = TensorDict({("agents", "success"): torch.tensor([[True], [False]])}, [2])

    found = SuccessReward(("agents", "success"), ("agents", "reward"))(data)

    assert found["agents", "reward"].tolist() == [[1.0], [0.0]]


def test_a_missing_success_entry_is_refused():
    with pytest.raises(SpecError, match=r"no entry 'success'. It has \['observation'"):
        TransformedEnv(DataEnv(OBSERVATION), SuccessReward()).reset()
    with pytest.raises(SpecError, match="scale must be a number, found 'much'"):
        SuccessReward(scale="much")
