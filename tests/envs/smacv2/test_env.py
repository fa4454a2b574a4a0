"""Battles of SMACv2 in steppe, compared with the double of the library."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import torch

pytest.importorskip("steppe_smacv2")

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env
from steppe.envs import next_seed
from steppe.errors import ActionError, EnvNotFound, LibraryMissing, LibraryVersionError, NotSupported
from steppe_smacv2 import SMACv2Env, SMACv2Wrapper
from steppe_smacv2.names import installed_smacv2
from steppe_testing.doubles.smacv2_double import Game, StarCraft2Env, StarCraftCapabilityEnvWrapper
from steppe_testing.fake_dists import FakeDists

from .test_conformance import TEAMS

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def assert_equal_to_library(data, seed, name="3m"):
    """Take the actions of data ``[T]`` with the library, and compare all entries."""
    raw = StarCraft2Env(map_name=name, seed=seed % 2**31)
    observations, state = raw.reset()
    for t in range(len(data)):
        row, following = data[t], data[t]["next"]
        np.testing.assert_array_equal(row["agents", "observation"].numpy(), np.stack(observations))
        np.testing.assert_array_equal(row["state"].numpy(), state)
        assert row["agents", "action_mask"].tolist() == [[bool(x) for x in one] for one in raw.get_avail_actions()]
        assert row["agents", "mask"].tolist() == [unit.health > 0 for unit in raw.agents.values()]
        timeouts = raw.timeouts
        reward, ended, info = raw.step(row["agents", "action"].tolist())
        observations, state = raw.get_obs(), raw.get_state()
        assert following["reward"].item() == np.float32(reward)
        assert following["done"].item() is ended
        assert following["truncated"].item() is (raw.timeouts > timeouts)
        assert following["info", "battle_won"].item() is info["battle_won"]
        assert following["info", "dead_allies"].item() == info["dead_allies"]
        np.testing.assert_array_equal(following["agents", "observation"].numpy(), np.stack(observations))
        np.testing.assert_array_equal(following["state"].numpy(), state)
        if ended:
            observations, state = raw.reset()
    raw.close()


def test_a_rollout_equals_the_library_over_several_episodes():
    env = make_env("smacv2:3m")
    env.set_seed(3)

    data = env.rollout(600, break_when_any_done=False)

    assert data["next", "done"].sum() > 5
    assert data["next", "info", "dead_allies"].max() > 0
    assert_equal_to_library(data, 3)
    env.close()


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, "smacv2:3m")
    batch.set_seed(5)
    data = batch.rollout(150, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(rows, seed)


def test_a_collector_equals_the_library():
    env = SMACv2Env("8m", seed=1)
    env.set_seed(2)
    collector = SyncDataCollector(env, None, frames_per_batch=150, total_frames=300)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 2, "8m")


def test_masks_allow_only_what_the_library_accepts():
    env = SMACv2Env("3m", seed=0)
    for _ in range(100):
        data = env.rollout(100)  # the library would raise
        dead = ~data["agents", "mask"]
        assert (data["agents", "action"][dead] == 0).all()
        assert (data["agents", "action"][~dead] != 0).all()
    env.close()


def test_an_unavailable_action_is_named_before_the_step():
    env = SMACv2Env("3m", seed=0)
    root = env.reset()
    with pytest.raises(ActionError, match=r"Agent 1 cannot take action 0: available are \[1, "):
        env.step(root.set(("agents", "action"), torch.tensor([1, 0, 1])))
    assert env._env._episode_steps == 0
    env.close()


def test_a_time_limit_truncates_in_every_mode():
    for continuing in (False, True):
        env = SMACv2Env("2m_vs_1z", seed=0, continuing_episode=continuing)
        root = env.reset()
        for enemy in env._env.enemies.values():  # too far away to meet
            enemy.pos.x = enemy.pos.y = 10_000.0

        data = env.rollout(
            200, lambda td: td.set(("agents", "action"), torch.tensor([1, 1])), auto_reset=False, tensordict=root
        )

        last = data[-1]["next"]
        assert len(data) == 150
        assert last["truncated"]
        assert last["info", "episode_limit"]
        assert not last["terminated"]
        env.close()


def test_a_victory_is_reported():
    env = SMACv2Env("3m", seed=0)
    root = env.reset()
    for enemy in env._env.enemies.values():
        enemy.health = 1.0
        enemy.pos.x, enemy.pos.y = 9.0, env._env.agents[0].pos.y
    for unit in env._env.agents.values():
        unit.pos.y = env._env.agents[0].pos.y
    env._available[:] = env._env.get_avail_actions()

    step = env.step(root.set(("agents", "action"), torch.tensor([6, 7, 8])))["next"]

    assert step["info", "battle_won"]
    assert step["terminated"]
    assert not step["truncated"]
    env.close()


def test_a_lost_connection_truncates():
    env = SMACv2Env("3m", seed=0)
    root = env.rand_action(env.reset())
    env._env.lose_connection = True

    step = env.step(root)["next"]

    assert step["truncated"]
    assert not step["terminated"]
    assert step["reward"] == 0
    env.close()


def test_resets_leave_no_other_game_running():
    before = Game.running
    env = SMACv2Env("3m", seed=0)
    assert Game.running == before, "the constructor launches none"
    begun = []
    for _ in range(3):
        begun.append(env.reset()["state"])
        assert Game.running == before + 1
    assert not torch.equal(begun[0], begun[1]), "the game is not launched again with the same seed"
    env.set_seed(1)
    env.reset()
    assert Game.running == before + 1
    env.close()
    assert Game.running == before


def test_one_seed_gives_one_sequence_of_teams():
    def teams(seed):
        env = make_env("smacv2:10gen_terran", capability_config=TEAMS)
        env.set_seed(seed)
        drawn = [(env.reset()["agents", "observation"], [env.get_agent_type(i) for i in range(4)]) for _ in range(4)]
        env.close()
        return torch.stack([observation for observation, _ in drawn]), [names for _, names in drawn]

    (first, types), (second, again), (other, _) = teams(7), teams(7), teams(8)
    assert torch.equal(first, second)
    assert types == again
    assert not torch.equal(first, other)
    assert {name for names in types for name in names} <= {"marine", "marauder"}
    assert "env_key" not in TEAMS["team_gen"], "the configuration of the caller is not changed"


def test_battles_made_elsewhere_are_wrapped():
    env = SMACv2Wrapper(StarCraft2Env(map_name="3m", seed=4))
    assert len(env.rollout(5)) == 5
    with pytest.raises(NotSupported, match="use SMACv2Env"):
        env.set_seed(0)
    env.close()

    teams = SMACv2Wrapper(
        StarCraftCapabilityEnvWrapper(map_name="10gen_terran", capability_config=copy.deepcopy(TEAMS))
    )
    assert teams.rollout(3)["agents", "action"].shape == (3, 4)
    assert teams.render("rgb_array").shape == (64, 64, 3)
    teams.close()
    with pytest.raises(TypeError, match="SMACv2Env"):
        SMACv2Wrapper(object())


@pytest.mark.parametrize("name", ["frame_skip", "reward_spars"])
def test_an_argument_that_the_library_lacks_is_named(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        SMACv2Env("3m", **{name: 2})
    assert SMACv2Env("3m", difficulty="5", conic_fov=True).group_map == {"agents": ["0", "1", "2"]}


def test_an_unknown_map_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean '10gen_terran'"):
        make_env("smacv2:10gen_teran")


def test_a_missing_or_old_library_is_named(tmp_path, monkeypatch):
    others = [path for path in sys.path if "double-smacv2" not in path]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    with pytest.raises(LibraryMissing, match="git clone"):
        make_env("smacv2:3m")
    FakeDists(tmp_path)("SMACv2", "0.9")
    with pytest.raises(LibraryVersionError, match=r"SMACv2>=1\.0, but SMACv2 0\.9"):
        installed_smacv2()
