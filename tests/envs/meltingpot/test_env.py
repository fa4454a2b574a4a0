"""Substrates of Melting Pot in steppe, compared with Melting Pot itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("meltingpot")

from meltingpot import substrate

from steppe import MarlGroupMapType, ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs, make_env
from steppe.errors import ArgumentError, EnvNotFound, IgnoredArgumentWarning, NotSupported
from steppe.registry import env_factory
from steppe_meltingpot import MeltingpotEnv, MeltingpotWrapper

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

SMALL = "prisoners_dilemma_in_the_matrix__repeated"
LARGE = "commons_harvest__open"


class Recording:
    """A substrate that keeps what it has returned, because no second one plays the same episode."""

    def __init__(self, env):
        self.env, self.timesteps, self.actions = env, [], []

    def _kept(self, timestep):
        observations = [{name: np.array(value) for name, value in each.items()} for each in timestep.observation]
        self.timesteps.append(timestep._replace(observation=observations, reward=[float(r) for r in timestep.reward]))
        return timestep

    def reset(self):
        return self._kept(self.env.reset())

    def step(self, actions):
        self.actions.append(list(actions))
        return self._kept(self.env.step(actions))

    def __getattr__(self, name):
        return getattr(self.env, name)


def recorded(name, **kwargs):
    """An environment, and the record of what its substrate returns."""
    env = MeltingpotEnv(name, **kwargs)
    record = Recording(env._env)
    env.wrap_library(record)
    return env, record


def assert_equal_to_library(env, data, timesteps, actions):
    """Compare the data ``[T]`` of an environment with what the library returned and was given."""
    timesteps = iter(timesteps)
    following = None
    for row, played in zip(data.unbind(0), actions, strict=True):
        first = next(timesteps) if following is None else following
        after = next(timesteps)
        for group, names in env.group_map.items():
            players = [int(name.rpartition("_")[2]) for name in names]
            for at, timestep in ((row, first), (row["next"], after)):
                for name, value in at[group, "observation"].items():
                    raw = np.stack([timestep.observation[player][name] for player in players])
                    np.testing.assert_array_equal(value.numpy(), raw.reshape(value.shape))
                np.testing.assert_array_equal(at["RGB"].numpy(), timestep.observation[0]["WORLD.RGB"])
            rewards = np.array([after.reward[player] for player in players], np.float32)
            np.testing.assert_array_equal(row["next", group, "reward"][:, 0].numpy(), rewards)
            assert row[group, "action"].tolist() == [played[player] for player in players]
        assert row["next", "terminated"].item() == after.last()
        following = None if row["next", "done"].item() else after


@pytest.mark.parametrize(
    ("name", "group_map"),
    [
        (SMALL, MarlGroupMapType.ALL_IN_ONE_GROUP),
        (LARGE, {"a": ["player_3", "player_0"], "b": [f"player_{i}" for i in (1, 2, 4, 5, 6)]}),
    ],
)
def test_a_rollout_equals_the_library_over_several_episodes(name, group_map):
    env, record = recorded(name, max_steps=5, group_map=group_map)

    data = env.rollout(13, break_when_any_done=False)

    assert data["next", "truncated"][:, 0].nonzero()[:, 0].tolist() == [4, 9]
    assert_equal_to_library(env, data, record.timesteps, record.actions)


def test_a_step_loop_equals_the_library():
    env, record = recorded(SMALL, max_steps=4)
    root, steps = env.reset(), []
    for _ in range(10):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step)

    assert_equal_to_library(env, torch.stack(steps), record.timesteps, record.actions)


def test_a_collector_equals_the_library_in_each_row():
    pairs = [recorded(SMALL, max_steps=limit) for limit in (3, 5)]
    batch = SerialEnv(2, [lambda env=env: env for env, _ in pairs])
    collector = SyncDataCollector(batch, None, frames_per_batch=20, total_frames=40)
    data = torch.cat([one.clone() for one in collector], -1)

    for row, (env, record) in zip(data, pairs, strict=True):
        # A batch may reset its environments before the first episode of the data.
        timesteps = record.timesteps
        while timesteps[1].first():
            timesteps = timesteps[1:]
        assert row["next", "done"].sum() > 2
        assert_equal_to_library(env, row, timesteps, record.actions[: len(row)])
    collector.shutdown()


def test_episodes_of_worker_processes_are_truncated():
    batch = ParallelEnv(2, env_factory(f"meltingpot:{SMALL}", max_steps=4))
    data = batch.rollout(9, break_when_any_done=False)
    batch.close()

    assert data["next", "truncated"][..., 0].nonzero()[:, 1].tolist() == [3, 7, 3, 7]
    assert data["agents", "observation", "RGB"].shape == (2, 9, 2, 40, 40, 3)
    assert not torch.equal(data["RGB"][0], data["RGB"][1])


def test_random_actions_are_taken_in_a_hundred_episodes():
    env = MeltingpotEnv(SMALL, max_steps=10)

    data = env.rollout(1000, break_when_any_done=False)

    assert data["next", "truncated"].sum() == 100


def test_the_substrate_ends_its_episodes():
    env = MeltingpotEnv("coins")
    data = env.rollout(5000)

    assert data["next", "done"][-1].item()
    assert data["next", "terminated"][-1].item()


def test_set_seed_warns_that_only_actions_are_seeded():
    env = MeltingpotEnv(SMALL)

    with pytest.warns(IgnoredArgumentWarning, match="one seed gives different worlds"):
        env.set_seed(0)
    first = env.rand_action()["agents", "action"]
    env.set_seed(0)
    assert torch.equal(first, env.rand_action()["agents", "action"])


def test_images_of_the_world_are_returned():
    env = MeltingpotEnv(SMALL)
    td = env.reset()

    assert torch.equal(env.get_rgb_image(), td["RGB"])
    assert env.render().dtype == np.uint8


def test_roles_choose_the_players():
    roles = substrate.get_config(LARGE).default_player_roles[:3]

    assert MeltingpotEnv(LARGE, roles=roles).reset()["agents"].batch_size == (3,)


def test_a_configuration_is_built_as_a_name_is():
    check_env_specs(MeltingpotEnv(substrate.get_config(SMALL), max_steps=5))


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'clean_up'"):
        make_env("meltingpot:cleanup")


def test_objects_that_are_no_substrates_are_refused():
    with pytest.raises(TypeError, match="MeltingpotEnv"):
        MeltingpotWrapper(SMALL)


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"batch_size": [2]}, NotSupported),
        ({"frame_skip": 2}, NotSupported),
        ({"max_steps": 0}, ArgumentError),
        ({"max_steps": 2.5}, ArgumentError),
    ],
)
def test_arguments_without_meaning_are_refused(kwargs, error):
    with pytest.raises(error):
        MeltingpotEnv(SMALL, **kwargs)
