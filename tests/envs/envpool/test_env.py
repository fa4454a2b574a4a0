"""EnvPool in steppe, compared with EnvPool itself."""

from __future__ import annotations

from typing import Any

import envpool
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs, make_env
from steppe.envs import next_seed
from steppe.errors import ActionError, ArgumentError, EnvNotFound, NotSupported
from steppe_envpool import EnvPoolEnv, MultiThreadedEnv, MultiThreadedEnvWrapper

pytestmark = pytest.mark.matrix

STEPS = 60


def play(env: MultiThreadedEnv, actions: torch.Tensor) -> list[TensorDict]:
    env.set_seed(3)
    td, steps = env.reset(), []
    for action in actions:
        td["action"] = action
        step, td = env.step_and_maybe_reset(td)
        steps.append(step)
    return steps


def given_actions(env: MultiThreadedEnv) -> torch.Tensor:
    return env.full_action_spec.rand((STEPS,), generator=torch.Generator().manual_seed(0))["action"]


def test_every_row_is_a_transition_with_its_last_observation() -> None:
    """An ended row has its last observation, not one of the next episode."""
    env = make_env("envpool:CartPole-v1", num_workers=3)
    actions = given_actions(env)
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=3)
    observation, _ = pool.reset()

    for action, step in zip(actions, play(env, actions), strict=True):
        np.testing.assert_array_equal(step["observation"].numpy(), observation)
        following, reward, terminated, truncated, _ = pool.step(action.argmax(-1).numpy().astype(np.int32))
        np.testing.assert_array_equal(step["next", "observation"].numpy(), following)
        np.testing.assert_array_equal(step["next", "reward"].squeeze(-1).numpy(), reward)
        np.testing.assert_array_equal(step["next", "terminated"].squeeze(-1).numpy(), terminated)
        observation = following.copy()
        ended = (terminated | truncated).nonzero()[0].astype(np.int32)
        if len(ended):
            fresh, info = pool.reset(ended)
            observation[info["env_id"]] = fresh
    env.close()


def test_some_episode_ends_in_the_comparison() -> None:
    env = MultiThreadedEnv(3, "CartPole-v1")

    ended = [bool(step["next", "done"].any()) for step in play(env, given_actions(env))]

    assert sum(ended) >= 3


def test_raw_rows_equal_the_pools_and_mark_resets() -> None:
    """With raw_rows, `valid` says which rows are transitions."""
    env = MultiThreadedEnv(3, "CartPole-v1", raw_rows=True)
    actions = given_actions(env)
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=3)
    pool.reset()
    ended = np.zeros(3, bool)

    for action, step in zip(actions, play(env, actions), strict=True):
        following, _, terminated, truncated, _ = pool.step(action.argmax(-1).numpy().astype(np.int32))
        np.testing.assert_array_equal(step["next", "observation"].numpy(), following)
        np.testing.assert_array_equal(step["next", "valid"].squeeze(-1).numpy(), ~ended)
        assert not step["next", "reward"][torch.from_numpy(ended)].any()
        assert not step["next", "done"][torch.from_numpy(ended)].any()
        ended = terminated | truncated


def test_a_seed_repeats_the_data_and_another_does_not() -> None:
    env = MultiThreadedEnv(2, "Pendulum-v1")

    first = env.set_seed(5), env.reset()["observation"]
    again = env.set_seed(5), env.reset()["observation"]
    other = env.set_seed(6), env.reset()["observation"]

    assert first[0] == again[0]
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


def test_a_partial_reset_leaves_other_rows_alone() -> None:
    env = MultiThreadedEnv(4, "CartPole-v1")
    td = env.rand_step(env.reset())
    root = env.step_mdp(td)
    before = root["observation"].clone()
    root["_reset"] = torch.tensor([[True], [False], [True], [False]])

    after = env.reset(root)["observation"]

    assert torch.equal(after[[1, 3]], before[[1, 3]])
    assert not torch.equal(after[[0, 2]], before[[0, 2]])


def test_earlier_steps_do_not_change() -> None:
    env = MultiThreadedEnv(4, "CartPole-v1")
    td = env.rand_step(env.reset())
    held = td.clone()

    root = env.step_mdp(td)
    for _ in range(30):
        root = env.step_and_maybe_reset(env.rand_action(root))[1]

    assert (td == held).all()


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Pong-v5", "Ant-v4", "FrozenLake-v1", "Acrobot-v1"])
def test_specs_describe_the_data(name: str) -> None:
    env = MultiThreadedEnv(2, name)

    check_env_specs(env)

    env.close()


def test_dict_observations_keep_their_names() -> None:
    env = MultiThreadedEnv(2, "MiniGrid-Empty-5x5-v0")

    assert {"image", "direction", "mission"} <= set(env.reset().keys())
    env.close()


def test_an_unknown_name_suggests_the_closest() -> None:
    with pytest.raises(EnvNotFound, match="Did you mean 'CartPole-v1'"):
        make_env("envpool:CartPol-v1")


def test_a_missing_and_a_wrong_action_are_refused() -> None:
    env = MultiThreadedEnv(2, "CartPole-v1")
    td = env.reset()

    with pytest.raises(ActionError, match="no action at 'action'"):
        env.step_and_maybe_reset(td)
    td["action"] = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ActionError, match=r"must have shape \(2, 2\).*found \(2, 3\)"):
        env.step_and_maybe_reset(td)


def test_an_asynchronous_pool_is_refused() -> None:
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4, batch_size=2)

    with pytest.raises(NotSupported, match="batch_size=num_envs"):
        MultiThreadedEnvWrapper(pool)


def test_a_foreign_pool_cannot_be_seeded() -> None:
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=2)

    with pytest.raises(NotSupported, match="Make it with seed="):
        MultiThreadedEnvWrapper(pool).set_seed(0)


def test_num_envs_is_refused_in_favour_of_num_workers() -> None:
    with pytest.raises(ArgumentError, match="num_workers=4 here, not num_envs=4"):
        make_env("envpool:CartPole-v1", num_envs=4)


def test_gymnasium_s_vector_api_steps_a_pool() -> None:
    """Its observations are those of EnvPool; last observations are in the infos."""
    from steppe_gym import as_vector_env

    envs = as_vector_env(MultiThreadedEnv(3, "CartPole-v1"), autoreset_mode="same_step")
    pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, seed=5)
    np.testing.assert_array_equal(envs.reset(seed=5)[0], pool.reset()[0])
    ends = 0
    for _ in range(25):
        action = np.array([1, 1, 0])
        ours, theirs = envs.step(action), pool.step(action)
        ended = theirs[2] | theirs[3]
        np.testing.assert_array_equal(ours[2] | ours[3], ended)
        np.testing.assert_array_equal(ours[1], theirs[1])
        if ended.any():
            ends += int(ended.sum())
            np.testing.assert_array_equal(np.stack(ours[4]["final_obs"][ended]), theirs[0][ended])
            assert (ours[0][ended] != theirs[0][ended]).any()
            break
        np.testing.assert_array_equal(ours[0], theirs[0])
    assert ends > 0
    with pytest.raises(NotSupported, match="one object of its library"):
        envs.set_attr("gravity", 1.0)
    envs.close()


def test_gymnasium_s_next_step_mode_is_refused_by_a_pool() -> None:
    from steppe_gym import as_vector_env

    envs = as_vector_env(MultiThreadedEnv(2, "CartPole-v1"), autoreset_mode="next_step")
    envs.reset(seed=0)

    def play() -> None:
        for _ in range(30):
            envs.step(np.array([1, 0]))

    with pytest.raises(NotSupported, match="autoreset_mode='same_step'"):
        play()
    envs.close()


def test_env_pool_env_makes_the_same_environment() -> None:
    named, other = EnvPoolEnv(3, "CartPole-v1"), MultiThreadedEnv(3, "CartPole-v1")
    actions = given_actions(named)

    assert isinstance(named, MultiThreadedEnvWrapper)
    for step, same in zip(play(named, actions), play(other, actions), strict=True):
        assert torch.equal(step["observation"], same["observation"])
        assert torch.equal(step["next", "reward"], same["next", "reward"])


@pytest.mark.parametrize("how", [SerialEnv, ParallelEnv, "collector"])
def test_pools_in_a_batch_and_a_collector_equal_the_library(how: Any) -> None:
    n = 3
    if how != "collector":
        with how(2, lambda: MultiThreadedEnv(n, "CartPole-v1")) as batch:
            batch.set_seed(5)
            rows = zip(batch.rollout(STEPS, break_when_any_done=False).unbind(0), (5, next_seed(5)), strict=True)
    else:
        env = MultiThreadedEnv(n, "CartPole-v1")
        env.set_seed(5)
        collector = SyncDataCollector(env, None, frames_per_batch=n * STEPS // 2, total_frames=n * STEPS)
        rows = [(torch.cat([each.clone() for each in collector], -1), 5)]
        collector.shutdown()

    for data, seed in rows:
        pool = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=n, seed=seed % (2**31 - 1))
        observation, _ = pool.reset()
        for step in data.unbind(-1):
            np.testing.assert_array_equal(step["observation"].numpy(), observation)
            following, reward, terminated, truncated, _ = pool.step(step["action"].argmax(-1).numpy().astype(np.int32))
            np.testing.assert_array_equal(step["next", "observation"].numpy(), following)
            np.testing.assert_array_equal(step["next", "reward"].squeeze(-1).numpy(), reward)
            np.testing.assert_array_equal(step["next", "done"].squeeze(-1).numpy(), terminated | truncated)
            observation = following.copy()
            ended = (terminated | truncated).nonzero()[0].astype(np.int32)
            if len(ended):
                fresh, info = pool.reset(ended)
                observation[info["env_id"]] = fresh
        assert data["next", "done"].any()
