"""RewardSum."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.transforms import Compose, StepCounter, TransformedEnv
from steppe_reward import RewardSum
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv
from tests.core.transforms.bases import BASES


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_rewards_are_added_up_in_each_episode(base):
    data = TransformedEnv(base(3), RewardSum()).rollout(7, break_when_any_done=False)

    time = data.ndim - 1
    reward, total = data["next", "reward"], data["next", "episode_reward"]
    for start in (0, 3, 6):
        expected = reward.narrow(time, start, min(3, 7 - start)).cumsum(time)
        assert torch.equal(total.narrow(time, start, min(3, 7 - start)), expected)
    assert (data["episode_reward"].select(time, 3) == 0).all()
    assert "reward" not in data.keys()


def test_sums_are_written_beside_their_rewards():
    env = TransformedEnv(NestedCountingEnv(3, root_done="any"), RewardSum())

    assert ("agents", "episode_reward") in env.observation_keys
    assert env.state_keys == [("agents", "episode_reward")]


def test_keys_can_be_chosen():
    env = TransformedEnv(ArrayCountingEnv(3), RewardSum(["reward"], ["return"]))

    assert "return" in env.rollout(2)["next"].keys()
    env = TransformedEnv(ArrayCountingEnv(3), RewardSum("reward"))
    assert "episode_reward" in env.rollout(2)["next"].keys()


def test_reward_sum_refuses_other_entries():
    with pytest.raises(SpecError, match=r"'gain' is no reward of the environment, which has \['reward'\]"):
        TransformedEnv(CountingEnv(3), RewardSum(["gain"])).reset()
    with pytest.raises(SpecError, match="out_keys and in_keys must have the same length"):
        RewardSum(["reward"], ["a", "b"])


def test_an_unknown_reset_mask_is_refused():
    with pytest.raises(SpecError, match=r"'done' is no reset mask of the environment, which takes \['_reset'\]"):
        TransformedEnv(CountingEnv(3), RewardSum(reset_keys=["done"])).reset()


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv, lambda n: SerialEnv(2, lambda: ArrayCountingEnv(n))])
def test_the_sums_may_be_rewards(base):
    env = TransformedEnv(base(3), RewardSum(reward_spec=True))

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)
    expected = TransformedEnv(base(3), RewardSum()).rollout(
        5, break_when_any_done=False, actions=data["action"].unbind(-2)
    )
    assert torch.equal(data["next", "episode_reward"], expected["next", "episode_reward"])
    assert torch.equal(data["episode_reward"], expected["episode_reward"])
    assert env.reward_keys == ["episode_reward", "reward"]
    assert "episode_reward" not in env.observation_keys


def test_its_keys_can_be_read():
    alone = RewardSum()
    assert (alone.in_keys, alone.out_keys) == (["reward"], ["episode_reward"])
    stored = RewardSum(in_keys=[("next", "reward")])
    assert stored.out_keys == [("next", "episode_reward")]
    env = TransformedEnv(NestedCountingEnv(5, root_done="any"), RewardSum())
    agents = env.transform
    assert agents.in_keys == [("agents", "reward")]
    assert agents.out_keys == [("agents", "episode_reward")]


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_the_sum_continues_from_the_data(base):
    env = TransformedEnv(base(5), RewardSum())
    td = env.reset().set("episode_reward", torch.tensor([10.0])).set("action", torch.tensor([False, True, False]))

    assert env.step(td)["next", "episode_reward"].item() == 11
    with pytest.raises(KeyError, match="no 'episode_reward' in the data given to step"):
        env.rand_step()


def test_a_limit_begins_a_new_sum():
    data = TransformedEnv(ArrayCountingEnv(9), Compose(StepCounter(2), RewardSum())).rollout(
        6, break_when_any_done=False
    )

    assert (data["episode_reward"][::2] == 0).all()
    assert torch.equal(data["next", "episode_reward"][1::2], data["next", "reward"].reshape(3, 2).sum(1, keepdim=True))


def test_stored_rewards_are_added_up_under_their_own_keys():
    done = torch.tensor([[False, True, False, False], [False, False, False, True]]).unsqueeze(-1)
    expected = [[1, 2, 1, 2], [1, 2, 3, 4]]
    data = TensorDict({"next": {"reward": torch.ones(2, 4, 1), "done": done}}, [2, 4])

    assert RewardSum()(data.clone())["next", "episode_reward"].squeeze(-1).tolist() == expected
    assert RewardSum(in_keys=[("next", "reward")])(data)["next", "episode_reward"].squeeze(-1).tolist() == expected
    assert RewardSum([("next", "reward")], ["total"])(data)["total"].squeeze(-1).tolist() == expected
    assert RewardSum()(data["next"])["episode_reward"].squeeze(-1).tolist() == expected
    without_ends = TensorDict({"reward": torch.ones(3, 1)}, [3])
    assert RewardSum()(without_ends)["episode_reward"].squeeze(-1).tolist() == [1, 2, 3]


def test_stored_rewards_are_added_up_over_the_dimension_of_time():
    data = TensorDict({"reward": torch.ones(4, 2, 1)}, [4, 2], names=["time", None])

    assert RewardSum()(data)["episode_reward"][..., 0].tolist() == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_reset_keys_name_masks_of_another_level():
    env = TransformedEnv(
        NestedCountingEnv(5, root_done="any", batch_size=(2,)),
        RewardSum([("agents", "reward")], ["total"], reset_keys=["_reset"]),
    )
    td = env.step_mdp(env.rand_step(env.reset()))
    td["total"] = torch.ones_like(td["total"])
    td["_reset"] = torch.tensor([[True], [False]])

    env.reset(td)

    assert td["total"][0].sum() == 0
    assert (td["total"][1] == 1).all()


def test_data_that_is_no_batch_of_steps_says_what_is_missing():
    with pytest.raises(KeyError, match=r"no entry 'reward' in the data.*Found .*observation"):
        RewardSum()(TensorDict({"observation": torch.zeros(3, 1)}, [3]))
    with pytest.raises(SpecError, match="no batch dimension"):
        RewardSum()(TensorDict({"reward": torch.zeros(1)}, []))
