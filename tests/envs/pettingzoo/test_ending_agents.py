"""Agents that end before the episode, and agents that wait for their turn."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("pettingzoo")

from steppe import SerialEnv
from steppe.errors import NotSupported, StateError
from steppe_pettingzoo import PettingZooWrapper
from tests.envs.pettingzoo.ending import Choosy, Leaving, leaving_in_turns

pytestmark = [pytest.mark.library, pytest.mark.matrix]


def column(data, key):
    return data["next", "walker", key].squeeze(-1).tolist()


def test_ended_agents_are_masked_and_keep_their_flags():
    env = PettingZooWrapper(Leaving(), use_mask=True, done_on_any=False)

    data = env.rollout(10)

    assert data.batch_size == (4,)
    assert column(data, "mask") == [[True] * 3, [False, True, True], [False, False, True], [False] * 3]
    gone = [[False] * 3, [True, False, False], [True, True, False], [True] * 3]
    assert column(data, "done") == gone
    assert column(data, "terminated") == [[*row[:2], False] for row in gone]
    assert column(data, "truncated")[-1] == [False, False, True]
    assert column(data, "reward") == [[1, 2, 3], [2, 4, 6], [0, 6, 9], [0, 0, 12]]
    # The last observation of who ends is there; afterwards it observes nothing.
    assert data["next", "walker", "observation"][:, :, 0].tolist() == [[1, 1, 1], [2, 2, 2], [0, 3, 3], [0, 0, 4]]
    ends = data["next"].select("done", "terminated", "truncated")[-1]
    assert [ends[key].item() for key in ("done", "terminated", "truncated")] == [True, False, True]
    assert not data["next", "done"][:-1].any()


def test_the_first_agent_to_end_ends_the_episode_by_default():
    data = PettingZooWrapper(Leaving()).rollout(10)

    assert data.batch_size == (2,)
    assert data["next", "terminated"][-1].item()
    assert "mask" not in data["walker"].keys()


@pytest.mark.parametrize("mask", [{}, {"use_mask": False}, {"use_mask": None}])
def test_agents_that_may_end_alone_need_a_mask(mask):
    with pytest.raises(NotSupported, match=r"done_on_any=False, agents may end .*: add use_mask=True"):
        PettingZooWrapper(Leaving(), done_on_any=False, **mask)

    assert PettingZooWrapper(leaving_in_turns(), done_on_any=False).use_mask


def test_a_step_after_the_first_end_is_refused_without_mask():
    env = PettingZooWrapper(Leaving())
    frame = env.rollout(10, break_when_any_done=True)[-1]

    with pytest.raises(StateError, match=r"\['walker_0'\] have ended, .*: reset the environment"):
        env.step(env.rand_action(env.step_mdp(frame)))


def test_agents_act_in_turns_until_they_end():
    """No agent acts instead of one that has ended."""
    env = PettingZooWrapper(leaving_in_turns())
    actions = [{f"walker_{i}": {"action": torch.tensor([t % 4])} for i in range(3)} for t in range(40)]
    given = [TensorDict({name: TensorDict(one, [1]) for name, one in step.items()}, []) for step in actions]

    data = env.rollout(40, actions=given)

    turns = [[int(row[f"walker_{i}"]["mask"].item()) for i in range(3)].index(1) for row in data]
    # Each round is a step of all who are left; the second is the last of the first agent, the third of the second.
    assert turns == [0, 1, 2, 0, 1, 2, 1, 2, 2]
    following = data["next"]
    assert following["done"].flatten().tolist() == [False] * 8 + [True]
    totals = [following[f"walker_{i}", "reward"].sum().item() for i in range(3)]
    assert totals == [1 + 2, 2 + 4 + 6, 3 + 6 + 9 + 12]
    assert following["walker_2", "truncated"][-1].item()
    assert not following["truncated"][:-1].any()


def test_infos_that_are_numbers_are_entries():
    data = PettingZooWrapper(Leaving()).rollout(10)

    assert data["walker", "info", "lives"][0].tolist() == [3, 3, 3]
    assert data["next", "walker", "info", "lives"].tolist() == [[2, 2, 2], [1, 1, 1]]
    assert set(data["walker", "info"].keys()) == {"lives"}


def test_a_state_without_a_space_is_described_by_its_first_value():
    data = PettingZooWrapper(Leaving(), return_state=True).rollout(10)

    assert data["state"].dtype is torch.float64
    assert data["next", "state"].tolist() == [[1, 3], [2, 2]]


def test_rows_of_a_batch_end_and_begin_by_themselves():
    batch = SerialEnv(2, [lambda: make(2), lambda: make(3)])

    data = batch.rollout(8, break_when_any_done=False)

    ends = data["next", "done"].squeeze(-1).int().tolist()
    assert ends == [[0, 0, 0, 1, 0, 0, 0, 1]] * 2
    assert not data["walker", "done"][:, 4].any()
    batch.close()


def make(seed):
    env = PettingZooWrapper(Leaving(), use_mask=True, done_on_any=False)
    env.set_seed(seed)
    return env


def test_some_agents_alone_cannot_be_reset():
    env = PettingZooWrapper(Leaving())
    td = env.reset()
    td["walker", "_reset"] = torch.tensor([[True], [False], [False]])

    with pytest.raises(NotSupported, match="only some agents"):
        env.reset(td)


def test_a_step_after_the_end_is_answered():
    env = PettingZooWrapper(Leaving(1))
    td = env.rollout(10)[-1]["next"]

    with pytest.raises(StateError, match="reset"):
        env.step(env.rand_action(td.exclude("reward")))


@pytest.mark.parametrize("categorical", [True, False])
def test_agents_of_one_group_with_masks_of_different_sizes(categorical):
    env = PettingZooWrapper(Choosy(), categorical_actions=categorical)

    for _ in range(4):
        root = env.reset()
        for row, n in zip(env.rand_action(root)["walker"].unbind(0), (2, 3, 4), strict=True):
            assert row["action_mask"].tolist() == [False] * (n - 1) + [True]
            assert (row["action"] if categorical else row["action"].argmax()).item() == n - 1
        following = env.step(root)["next"]
    assert [row["observation", "observation"].tolist() for row in following["walker"].unbind(0)] == [
        [1.0] * n for n in (1, 2, 3)
    ]
