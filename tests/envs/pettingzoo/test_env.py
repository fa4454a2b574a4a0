"""Making and using PettingZoo's environments: names, groups, masks, actions, errors."""

from __future__ import annotations

import copy
import importlib
import pickle
from typing import ClassVar

import numpy as np
import pytest
import torch

pytest.importorskip("pettingzoo")

import gymnasium
from pettingzoo import ParallelEnv as LibraryParallelEnv
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.env_logger import EnvLogger

from steppe import MarlGroupMapType, ParallelEnv, SerialEnv, check_env_specs, list_envs, make_env
from steppe.errors import ActionError, EnvNotFound, NotSupported, SpecError
from steppe.specs import Bounded, OneHot
from steppe_pettingzoo import PettingZooEnv, PettingZooWrapper
from steppe_testing import assert_equal_data
from tests.envs.pettingzoo.ending import Leaving

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("ignore")]


def test_names_are_listed_with_their_families():
    names = list_envs("pettingzoo")

    assert {"butterfly/pistonball_v6", "classic/chess_v6", "mpe2/simple_tag_v3", "atari/pong_v3"} <= set(names)
    assert PettingZooEnv.available_envs == names


def test_a_task_is_found_without_its_family():
    assert PettingZooEnv("tictactoe_v3", parallel=False, use_mask=True).group_map == {
        "player_1": ["player_1"],
        "player_2": ["player_2"],
    }


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(EnvNotFound, match=r"Plugin 'pettingzoo'.*Did you mean 'butterfly/pistonball_v6'"):
        make_env("pettingzoo:butterfly/pistonball_v5")


@pytest.mark.parametrize(
    ("group_map", "expected"),
    [
        (None, {"adversary": 3, "agent": 1}),
        (MarlGroupMapType.ALL_IN_ONE_GROUP, {"agents": 4}),
        (MarlGroupMapType.ONE_GROUP_PER_AGENT, {"adversary_0": 1, "adversary_1": 1, "adversary_2": 1, "agent_0": 1}),
        ({"a": ["agent_0", "adversary_1"], "b": ["adversary_0", "adversary_2"]}, {"a": 2, "b": 2}),
    ],
)
def test_agents_are_grouped_as_asked(group_map, expected):
    env = PettingZooEnv("mpe2/simple_tag_v3", group_map=group_map, seed=0)

    check_env_specs(env)
    data = env.rollout(2)
    assert {group: data[group].batch_size[1] for group in env.group_map} == expected


def test_a_group_map_that_does_not_fit_is_answered():
    with pytest.raises(SpecError, match=r"agents without a group: \['agent_0'\]"):
        PettingZooEnv("mpe2/simple_tag_v3", group_map={"a": ["adversary_0", "adversary_1", "adversary_2"]})


def test_unequal_agents_of_a_group_keep_their_own_sizes():
    env = make_env("pettingzoo:mpe2/simple_tag_v3", group_map=MarlGroupMapType.ALL_IN_ONE_GROUP)

    td = env.rollout(2)[0]

    assert [agent["observation"].shape[-1] for agent in td["agents"].unbind(0)] == [16, 16, 16, 14]


def test_actions_are_numbers_or_one_hot_rows_or_boxes():
    numbers = PettingZooEnv("mpe2/simple_spread_v3")
    rows = PettingZooEnv("mpe2/simple_spread_v3", categorical_actions=False)
    boxes = PettingZooEnv("mpe2/simple_spread_v3", continuous_actions=True)

    assert numbers.rand_action()["agents", "action"].shape == (3,)
    assert rows.rand_action()["agents", "action"].shape == (3, 5)
    assert isinstance(rows.full_action_spec["agents", "action"], OneHot)
    assert isinstance(boxes.full_action_spec["agents", "action"], Bounded)
    found = []
    for env in (numbers, rows):
        env.set_seed(0)
        td = env.reset()
        action = torch.tensor([1, 2, 3])
        td["agents", "action"] = action if env is numbers else torch.nn.functional.one_hot(action, 5)
        found.append(env.step(td)["next", "agents", "observation"])
    assert torch.equal(*found)


#: Steps after which an episode is given up, in games that random moves do not end soon.
LONGEST = {"chess_v6": 20, "go_v5": 20}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        *[(name, {}) for name in ("chess_v6", "connect_four_v3", "tictactoe_v3", "hanabi_v5", "leduc_holdem_v4")],
        *[("texas_holdem_v4", {}), ("texas_holdem_no_limit_v6", {}), ("go_v5", {"board_size": 5})],
    ],
)
def test_the_library_accepts_all_moves_of_a_hundred_games(name, kwargs, monkeypatch):
    """Illegal moves end a game with a warning, so moves are compared with the mask of the library itself."""
    played = []

    class Checked(BaseWrapper):
        def step(self, action):
            agent = self.env.agent_selection
            if not (self.env.terminations[agent] or self.env.truncations[agent]):
                seen, info = self.env.observe(agent), self.env.infos[agent]
                mask = seen["action_mask"] if "action_mask" in seen else info["action_mask"]
                assert mask[action] == 1, (agent, action)
                played.append(int(action))
            super().step(action)

    def refuse():
        raise AssertionError("the library has refused a move")

    monkeypatch.setattr(EnvLogger, "warn_on_illegal_move", staticmethod(refuse))
    env = PettingZooWrapper(Checked(importlib.import_module(f"pettingzoo.classic.{name}").env(**kwargs)))
    env.set_seed(0)
    for _ in range(100):
        env.rollout(LONGEST.get(name, 1000))

    assert len(played) > 100
    assert len(set(played)) > 2


@pytest.mark.parametrize("categorical", [True, False])
def test_random_actions_are_among_those_that_the_mask_allows(categorical):
    env = PettingZooEnv("classic/connect_four_v3", categorical_actions=categorical)
    env.set_seed(0)

    for _ in range(5):
        data = env.rollout(50)
        for step in data:
            for group in env.group_map:
                action = step[group, "action"][0]
                number = action if categorical else action.argmax()
                assert step[group, "action_mask"][0, number]
        # An illegal move would cost its player 1 and nobody would gain.
        assert data["next", "player_0", "reward"].sum() + data["next", "player_1", "reward"].sum() == 0


def test_one_seed_gives_the_same_random_actions_in_every_class():
    env = PettingZooEnv("mpe2/simple_tag_v3")
    assert not env.action_masks
    env.set_seed(2)
    alone = env.rollout(5)

    batch = SerialEnv(1, "pettingzoo:mpe2/simple_tag_v3")
    batch.set_seed(2)

    together = batch.rollout(5)[0]
    for group in env.group_map:
        assert torch.equal(together[group, "action"], alone[group, "action"])


def test_random_actions_use_the_masks_in_the_data():
    env = PettingZooEnv("classic/connect_four_v3")
    td = env.reset()
    td["player_0", "action_mask"] = torch.tensor([[False] * 6 + [True]])

    assert env.action_masks["player_0", "action"] == ("player_0", "action_mask")
    assert {env.rand_action(td.clone())["player_0", "action"].item() for _ in range(10)} == {6}
    with pytest.raises(SpecError, match=r"env.rand_action\(env.reset\(\)\)"):
        env.rand_action()


class Tables(LibraryParallelEnv):
    """Three players of one table, whose infos say which of their actions are allowed: two, three, and all of four."""

    metadata: ClassVar = {"name": "tables_v0"}

    def __init__(self):
        self.possible_agents = ["player_0", "player_1", "player_2"]
        self.steps = 0

    def observation_space(self, agent):
        return gymnasium.spaces.Box(0, 1, (1,))

    def action_space(self, agent):
        return gymnasium.spaces.Discrete(4 if agent == "player_2" else 3 + int(agent[-1]))

    def _answers(self):
        observations = {agent: np.zeros(1, np.float32) for agent in self.agents}
        masks = {f"player_{i}": np.arange(3 + i) == self.steps % (3 + i) for i in range(2)}
        return observations, {agent: {"action_mask": masks[agent]} if agent in masks else {} for agent in self.agents}

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        return self._answers()

    def step(self, actions):
        assert actions["player_0"] == self.steps % 3
        assert actions["player_1"] == self.steps % 4
        self.steps += 1
        observations, infos = self._answers()
        over = dict.fromkeys(self.agents, self.steps == 9)
        return observations, dict.fromkeys(self.agents, 1.0), over, dict.fromkeys(self.agents, False), infos


@pytest.mark.parametrize("batch", [None, SerialEnv])
def test_masks_of_agents_in_a_group_may_differ_in_size(batch):
    env = PettingZooWrapper(Tables()) if batch is None else batch(2, lambda: PettingZooWrapper(Tables()))

    assert env.action_masks == {("player", "action"): ("player", "action_mask")}
    assert env.rollout(20).batch_size[-1] == 9


def test_the_mask_that_is_an_info_is_an_entry_once():
    data = PettingZooEnv("classic/hanabi_v5", seed=0).rollout(3)

    assert data["player_0", "action_mask"].shape == (3, 1, 20)
    assert "info" not in data["player_0"].keys()


def test_chess_is_played_to_an_end():
    env = make_env("pettingzoo:classic/chess_v6", seed=0)

    data = env.rollout(40)

    assert data["player_0", "observation", "observation"].shape[1:] == (1, 8, 8, 111)
    assert data["player_0", "mask"].flatten().tolist() == [t % 2 == 0 for t in range(data.shape[0])]


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
def test_random_games_of_chess_in_a_batch_are_legal(batch):
    env = batch(2, "pettingzoo:classic/chess_v6")
    env.set_seed(0)

    data = env.rollout(20)

    allowed = torch.where(
        data["player_0", "mask"],
        data["player_0", "action_mask"].gather(-1, data["player_0", "action"].unsqueeze(-1)).squeeze(-1),
        True,
    )
    assert data.shape == (2, 20)
    assert bool(allowed.all())
    assert len(set(data["player_0", "action"].flatten().tolist())) > 2
    env.close()


def test_games_of_atari_find_their_roms():
    pytest.importorskip("multi_agent_ale_py")
    pytest.importorskip("ale_py")
    env = make_env("pettingzoo:atari/pong_v3", seed=0)

    data = env.rollout(3)

    assert data["first", "observation"].shape == (3, 1, 210, 160, 3)
    env.close()


def test_the_state_is_an_entry():
    env = make_env("pettingzoo:mpe2/simple_spread_v3", return_state=True, seed=0)
    data = env.rollout(2)

    assert env.observation_spec["state"].shape == (54,)
    torch.testing.assert_close(data["state"][0], data["agents", "observation"][0].flatten())
    with pytest.raises(NotSupported, match="no state"):
        make_env("pettingzoo:classic/tictactoe_v3", return_state=True)


def test_a_seed_applies_to_the_next_reset():
    env = PettingZooEnv("mpe2/simple_spread_v3", seed=4)
    first = env.reset()
    env.set_seed(4)

    assert (env.reset() == first).all()
    assert not (env.reset() == first).all()
    env.set_seed(4)
    env.reset()
    env.set_seed(None)
    seeded = PettingZooEnv("mpe2/simple_spread_v3", seed=4)
    seeded.reset()
    assert not (env.reset() == seeded.reset()).all()


def test_an_action_that_is_not_there_names_its_agent():
    env = PettingZooEnv("mpe2/simple_tag_v3")
    td = env.rand_action(env.reset())
    td["adversary", "action"] = torch.tensor([0, 9, 0])

    with pytest.raises(ActionError, match="'adversary_1' must be a whole number from 0 to 4, found 9"):
        env.step(td)


def test_frames_come_from_the_library():
    env = make_env("pettingzoo:butterfly/pistonball_v6", render_mode="rgb_array")
    env.reset()

    assert env.render().shape[-1] == 3
    env.close()


def test_wrong_arguments_are_answered():
    with pytest.raises(NotSupported, match="leave use_mask=False out"):
        PettingZooEnv("classic/tictactoe_v3", use_mask=False)
    with pytest.raises(NotSupported, match="leave out parallel=True"):
        PettingZooEnv("classic/tictactoe_v3", parallel=True)
    with pytest.raises(TypeError, match=r"PettingZooEnv\('butterfly/pistonball_v6'\)"):
        PettingZooWrapper("pistonball_v6")


@pytest.mark.parametrize("group_map", [None, MarlGroupMapType.ALL_IN_ONE_GROUP], ids=["alike", "unequal"])
def test_a_copy_gives_the_data_of_what_it_was_made_from(group_map):
    env = PettingZooEnv("mpe2/simple_tag_v3", group_map=group_map)
    found = []
    for one in (env, copy.deepcopy(env)):
        one.set_seed(0)
        found.append(one.rollout(4))

    assert_equal_data(*found)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("mpe2/simple_tag_v3", {"group_map": MarlGroupMapType.ALL_IN_ONE_GROUP}),
        ("mpe2/simple_spread_v3", {"continuous_actions": True, "return_state": True}),
        ("classic/connect_four_v3", {"categorical_actions": False}),
        ("butterfly/pistonball_v6", {"render_mode": "rgb_array", "n_pistons": 3}),
    ],
)
def test_a_pickle_gives_the_data_of_what_it_was_made_from(name, arguments):
    env = PettingZooEnv(name, **arguments)
    env.rollout(2)
    if "render_mode" in arguments:
        env.render()  # the library draws on surfaces, which have no pickle
    found = []
    for one in (env, pickle.loads(pickle.dumps(env))):
        one.set_seed(0)
        found.append(one.rollout(4))

    assert_equal_data(*found)


def test_later_steps_leave_returned_data_unchanged():
    env = make_env("pettingzoo:mpe2/simple_tag_v3")
    env.set_seed(0)
    first = env.rand_step(env.reset())
    kept = first.clone()
    env.rollout(3)

    assert_equal_data(first, kept)


@pytest.mark.parametrize("wrong", [9, -1])
def test_an_invalid_action_is_an_error_with_the_agents_name(wrong):
    env = make_env("pettingzoo:classic/tictactoe_v3")
    td = env.rand_action(env.reset())
    td["player_1", "action"] = torch.tensor([wrong])

    with pytest.raises(ActionError, match="player_1"):
        env.step(td)


def test_the_action_of_an_agent_that_does_not_act_is_ignored():
    env = make_env("pettingzoo:classic/tictactoe_v3")
    td = env.rand_action(env.reset())
    td["player_2", "action"] = torch.tensor([0])

    assert env.step(td)["next", "player_2", "mask"].all()


class PaysArrays(Leaving):
    """Rewards are arrays of one value, except for who has the number 1."""

    def step(self, actions):
        observations, rewards, *others = super().step(actions)
        paid = {agent: reward if agent.endswith("1") else np.array([reward]) for agent, reward in rewards.items()}
        return observations, paid, *others


def test_rewards_may_be_arrays_of_one_value():
    found = [PettingZooWrapper(env, use_mask=True, done_on_any=False).rollout(3) for env in (Leaving(), PaysArrays())]

    assert found[0]["next", "walker", "reward"].any()
    assert torch.equal(*(data["next", "walker", "reward"] for data in found))


class PaysNone(Leaving):
    """Says something wrong of its second agent in the second step."""

    def __init__(self, column, value):
        super().__init__()
        self.column, self.value = column, value

    def step(self, actions):
        found = super().step(actions)
        if self.steps == 2:
            found[self.column]["walker_1"] = self.value
        return found


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (0, [None, 1.0], "'observation'"),
        (1, None, "'reward' must be a number"),
        (1, "3", "'reward' must be a number"),
        (2, None, "'terminated' must be True or False"),
        (3, "False", "'truncated' must be True or False"),
    ],
)
def test_an_error_for_none_names_the_agent(column, value, text):
    env = PettingZooWrapper(PaysNone(column, value), use_mask=True)

    with pytest.raises(SpecError, match=rf"step, agent 'walker_1': .*{text}"):
        env.rollout(4)


def test_a_wrapper_takes_arguments_in_the_order_of_torchrl():
    spread = importlib.import_module("mpe2.simple_spread_v3").parallel_env()
    env = PettingZooWrapper(spread, True, MarlGroupMapType.ONE_GROUP_PER_AGENT, True, False, 7, True)

    assert isinstance(env.full_action_spec["agent_0", "action"], OneHot)
    assert {"state", ("agent_2", "mask")} <= set(env.reset().keys(include_nested=True))
