"""Games of Procgen in steppe, compared with Procgen itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("procgen")

import procgen

from steppe import ParallelEnv, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv, check_env_specs, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound, NotSupported
from steppe.registry import env_factory
from steppe_procgen import ProcgenEnv, ProcgenWrapper

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def raw_games(name, n, seed, **kwargs):
    return procgen.ProcgenGym3Env(num=n, env_name=name, rand_seed=seed % 2**31, **kwargs)


def assert_equal_to_library(raw, data):
    """Take the actions of data ``[n, T]`` with games of the library, and compare all entries."""
    _, seen, _ = raw.observe()
    infos = raw.get_info()
    for t in range(data.shape[1]):
        row = data[:, t]
        np.testing.assert_array_equal(row["observation"].numpy(), seen["rgb"].transpose(0, 3, 1, 2))
        assert row["level_seed"][:, 0].tolist() == [info["level_seed"] for info in infos]
        assert not row["level_complete"].any()
        raw.act(row["action"].numpy())
        reward, seen, ended = raw.observe()
        infos = raw.get_info()
        np.testing.assert_array_equal(row["next", "reward"][:, 0].numpy(), reward)
        np.testing.assert_array_equal(row["next", "terminated"][:, 0].numpy(), ended)
        shown = np.where(ended[:, None, None, None], 0, seen["rgb"].transpose(0, 3, 1, 2))
        np.testing.assert_array_equal(row["next", "observation"].numpy(), shown)
        seeds = [info["prev_level_seed" if over else "level_seed"] for info, over in zip(infos, ended, strict=True)]
        assert row["next", "level_seed"][:, 0].tolist() == seeds
        solved = [bool(info["prev_level_complete"]) and bool(over) for info, over in zip(infos, ended, strict=True)]
        assert row["next", "level_complete"][:, 0].tolist() == solved


@pytest.mark.parametrize("name", ["coinrun", "starpilot", "bigfish"])
def test_a_rollout_equals_the_library_over_several_episodes(name):
    env = ProcgenEnv(name, num_envs=4, num_levels=20, distribution_mode="easy")
    env.set_seed(3)

    data = env.rollout(700, break_when_any_done=False)

    ends = data["next", "done"][..., 0].nonzero()[:, 1]
    assert len(set(ends.tolist())) > 1, "games end alone, so that resets are partial"
    assert_equal_to_library(raw_games(name, 4, 3, num_levels=20, distribution_mode="easy"), data)


def test_a_step_loop_equals_the_library():
    env = ProcgenEnv("starpilot", num_envs=2, seed=8)
    root, steps = env.reset(), []
    for _ in range(300):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step)

    assert_equal_to_library(raw_games("starpilot", 2, 8), torch.stack(steps, 1))


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, env_factory("procgen:starpilot", num_envs=2))
    batch.set_seed(5)
    data = batch.rollout(150, break_when_any_done=False)
    batch.close()

    for games, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(raw_games("starpilot", 2, seed), games)


@pytest.mark.parametrize("kind", [None, ParallelEnv])
def test_a_collector_equals_the_library(kind):
    env = ProcgenEnv("starpilot", num_envs=2) if kind is None else kind(1, env_factory("procgen:starpilot", num_envs=2))
    env.set_seed(11)
    collector = SyncDataCollector(env, None, frames_per_batch=200, total_frames=400)
    data = torch.cat([one.clone() for one in collector], -1)
    collector.shutdown()

    assert data["next", "done"].any()
    assert_equal_to_library(raw_games("starpilot", 2, 11), data.reshape(2, -1))


def test_a_truncated_game_is_reset_without_the_others():
    limited = TransformedEnv(ProcgenEnv("maze", num_envs=2, seed=1), StepCounter(max_steps=7))
    data = limited.rollout(30, break_when_any_done=False)

    begins = torch.arange(30) % 7 == 0
    assert torch.equal(data["step_count"][..., 0] == 0, begins.expand(2, 30))
    assert len(set(data["level_seed"][0, :, 0].tolist())) == 5


def test_a_partial_reset_keeps_other_games():
    first, second = (ProcgenEnv("coinrun", num_envs=3, seed=2) for _ in range(2))
    actions = [first.rand_action()["action"] for _ in range(20)]
    one, two = first.reset(), second.reset()
    for t, action in enumerate(actions):
        if t == 10:
            mask = torch.tensor([[True], [False], [False]])
            one = first.reset(one.set("_reset", mask))
            assert not torch.equal(one["level_seed"][0], two["level_seed"][0])
        one, two = (env.step_mdp(env.step(td.set("action", action))) for env, td in ((first, one), (second, two)))
        assert torch.equal(one["observation"][1:], two["observation"][1:])


def test_the_last_image_of_an_episode_is_zero():
    env = ProcgenEnv("starpilot", num_envs=4, seed=0)

    data = env.rollout(400, break_when_any_done=False)

    ended = data["next", "done"][..., 0]
    assert ended.any()
    assert not data["next", "observation"][ended].any()
    assert data["observation"][:, 1:][ended[:, :-1]].flatten(1).any(-1).all()


def test_levels_are_the_requested_ones():
    env = ProcgenEnv("coinrun", num_envs=8, num_levels=3, start_level=50, seed=0)

    data = env.rollout(300, break_when_any_done=False)

    assert set(data["level_seed"].flatten().tolist()) == {50, 51, 52}


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'coinrun'"):
        make_env("procgen:coinrunn")


@pytest.mark.parametrize(
    "kwargs", [{"distribution_mode": "simple"}, {"levels": 3}, {"num_envs": 0}, {"num_envs": True}]
)
def test_arguments_that_procgen_refuses_are_named(kwargs):
    with pytest.raises(ArgumentError, match=next(iter(kwargs))):
        ProcgenEnv("maze", **kwargs)


def test_games_made_elsewhere_are_wrapped():
    env = ProcgenWrapper(procgen.ProcgenEnv(num_envs=2, env_name="maze"))

    check_env_specs(env)
    with pytest.raises(NotSupported, match="Use ProcgenEnv"):
        env.set_seed(0)
    with pytest.raises(ArgumentError, match="batch size of 2 games"):
        ProcgenWrapper(procgen.ProcgenEnv(num_envs=2, env_name="maze"), batch_size=[3])


def test_one_game_is_drawn():
    assert ProcgenEnv("maze", num_envs=2).render(1).shape == (64, 64, 3)
    assert ProcgenEnv("maze", render_mode="rgb_array").render().shape == (512, 512, 3)
