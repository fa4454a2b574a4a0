"""RewardSum."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.transforms import Compose, RewardSum, StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv

BASES = {
    "tensordict": CountingEnv,
    "arrays": ArrayCountingEnv,
    "batch": lambda steps: CountingEnv(steps, batch_size=(2,)),
    "serial": lambda steps: SerialEnv(2, lambda: ArrayCountingEnv(steps)),
}


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


def test_sums_stand_beside_their_rewards():
    env = TransformedEnv(NestedCountingEnv(3, root_done="any"), RewardSum())

    assert ("agents", "episode_reward") in env.observation_keys
    assert env.state_keys == [("agents", "episode_reward")]


def test_keys_can_be_chosen():
    env = TransformedEnv(ArrayCountingEnv(3), RewardSum(["reward"], ["return"]))

    assert "return" in env.rollout(2)["next"].keys()
    env = TransformedEnv(ArrayCountingEnv(3), RewardSum("reward"))
    assert "episode_reward" in env.rollout(2)["next"].keys()


def test_what_is_no_reward_is_refused():
    with pytest.raises(SpecError, match=r"'gain' is no reward of the environment, which has \['reward'\]"):
        TransformedEnv(CountingEnv(3), RewardSum(["gain"])).reset()
    with pytest.raises(SpecError, match="out_keys must have the length"):
        RewardSum(["reward"], ["a", "b"])


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_the_sum_goes_on_from_the_data(base):
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


def test_a_batch_of_steps_is_added_up_without_an_environment():
    done = torch.tensor([[False, True, False, False], [False, False, False, True]]).unsqueeze(-1)
    data = TensorDict({"next": {"reward": torch.ones(2, 4, 1), "done": done}}, [2, 4])

    assert RewardSum()(data)["next", "episode_reward"].squeeze(-1).tolist() == [[1, 2, 1, 2], [1, 2, 3, 4]]


def test_masks_of_another_level_decide_where_asked_to():
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
    with pytest.raises(KeyError, match=r"no .*'next', 'reward'.*Found .*observation"):
        RewardSum()(TensorDict({"observation": torch.zeros(3, 1)}, [3]))
