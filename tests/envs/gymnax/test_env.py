"""Gymnax in steppe, compared with Gymnax itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gymnax")

import gymnax
import jax

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs
from steppe.envs import next_seed
from steppe.registry import env_factory
from steppe_gymnax import GymnaxEnv, GymnaxWrapper

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

#: Environments, and changes of their parameters.
CASES = {
    "CartPole-v1": {"max_steps_in_episode": 15},
    "Breakout-MinAtar": {},
    "Pendulum-v1": {"max_steps_in_episode": 9},
    "DiscountingChain-bsuite": {"max_steps_in_episode": 7},
}


def assert_equal_to_library(name: str, data: Any, seed: int) -> None:
    """Take the actions of data ``[n, T]`` with compiled functions of Gymnax, and compare all entries."""
    env, params = gymnax.make(name)
    params = params.replace(**CASES[name])
    n, steps = data.shape
    begin = jax.jit(jax.vmap(lambda key: env.reset_env(key, params)))
    step = jax.jit(jax.vmap(lambda key, state, action: env.step_env(key, state, action, params)))
    chain = jax.random.PRNGKey(seed)

    def first(chain: Any) -> Any:
        chain, key = jax.random.split(chain)
        pairs = jax.vmap(jax.random.split)(jax.random.split(key, n))
        return chain, pairs[:, 0], *begin(pairs[:, 1])

    chain, keys, seen, state = first(chain)
    for t in range(steps):
        row = data[:, t]
        np.testing.assert_array_equal(row["observation"].numpy(), np.asarray(seen))
        pairs = jax.vmap(jax.random.split)(keys)
        keys = pairs[:, 0]
        seen, state, reward, done, _ = step(pairs[:, 1], state, row["action"].numpy())
        np.testing.assert_array_equal(row["next", "observation"].numpy(), np.asarray(seen))
        np.testing.assert_array_equal(row["next", "reward"].numpy().ravel(), np.asarray(reward, np.float32).ravel())
        done = np.asarray(done, bool).ravel()
        np.testing.assert_array_equal(row["next", "done"][:, 0].numpy(), done)
        limit = np.asarray(state.time) >= params.max_steps_in_episode
        assert not (row["next", "truncated"][:, 0].numpy() & ~limit).any()
        if name == "Pendulum-v1":
            np.testing.assert_array_equal(row["next", "truncated"][:, 0].numpy(), limit)
        if done.any():
            chain, new_keys, new_seen, new_state = first(chain)

            def chosen(new: Any, old: Any, done: Any = done) -> Any:
                return jax.numpy.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old)

            keys, seen = chosen(new_keys, keys), chosen(new_seen, seen)
            state = jax.tree_util.tree_map(chosen, new_state, state)


@pytest.mark.parametrize("name", list(CASES))
def test_a_rollout_equals_the_library_over_several_episodes(name: str) -> None:
    env = GymnaxEnv(name, env_params=CASES[name], batch_size=3)
    env.set_seed(5)

    data = env.rollout(40, break_when_any_done=False)

    assert data["next", "done"].any()
    assert_equal_to_library(name, data, 5)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind: Any) -> None:
    name = "CartPole-v1"
    batch = kind(2, env_factory(f"gymnax:{name}", env_params=CASES[name], state_in_data=False))
    batch.set_seed(3)
    data = batch.rollout(25, break_when_any_done=False)
    batch.close()

    for row, seed in zip(data, (3, next_seed(3)), strict=True):
        assert_equal_to_library(name, row[None], seed)


def test_a_collector_equals_the_library() -> None:
    name = "CartPole-v1"
    env = GymnaxEnv(name, env_params=CASES[name], batch_size=3)
    env.set_seed(8)
    collector = SyncDataCollector(env, None, frames_per_batch=60, total_frames=120)
    data = torch.cat([one.clone() for one in collector], -1)
    collector.shutdown()

    assert_equal_to_library(name, data, 8)


def test_a_fall_in_the_last_step_is_no_truncation() -> None:
    env = GymnaxEnv("CartPole-v1", batch_size=64)
    env.set_seed(0)
    falls = env.rollout(40, break_when_any_done=False)
    # The step in which the first pole falls is made the limit.
    first = int(falls["next", "terminated"].any(0).flatten().nonzero()[0])
    limited = GymnaxEnv("CartPole-v1", env_params={"max_steps_in_episode": first + 1}, batch_size=64)
    limited.set_seed(0)
    data = limited.rollout(first + 1, actions=list(falls[:, : first + 1].select("action").unbind(1)))

    last = data[:, -1]["next"]
    assert last["done"].all()
    assert torch.equal(last["terminated"], falls[:, first]["next", "terminated"])
    assert torch.equal(last["truncated"], ~last["terminated"])


@pytest.mark.parametrize("name", ["Breakout-MinAtar", "SpaceInvaders-MinAtar"])
def test_a_limit_truncates_games_that_remember_their_end(name: str) -> None:
    limit = 9
    free = GymnaxEnv(name, batch_size=16)
    free.set_seed(3)
    ends = free.rollout(60, break_when_any_done=False)["next", "terminated"]
    limited = GymnaxEnv(name, batch_size=16, env_params={"max_steps_in_episode": limit})
    limited.set_seed(3)
    data = limited.rollout(limit, break_when_any_done=False)["next"]

    assert ends.any()
    assert torch.equal(data["terminated"], ends[:, :limit])
    running = ~ends[:, :limit].any(1)
    assert running.any()
    assert torch.equal(data["truncated"][:, -1] & running, running)


def test_each_step_draws_from_a_fresh_key() -> None:
    env = GymnaxEnv("Asterix-MinAtar", batch_size=2)
    env.set_seed(0)
    td, keys = env.reset(), set()
    for _ in range(3):
        keys.add(np.asarray(env.jax_state[0]).tobytes())
        td = env.step_mdp(env.step(env.rand_action(td)))

    assert len(keys) == 3


def test_whole_numbers_and_bools_become_rewards_of_float() -> None:
    data = GymnaxEnv("Catch-bsuite", batch_size=2).rollout(12, break_when_any_done=False)

    assert data["next", "reward"].dtype is torch.float32


def test_an_environment_made_elsewhere_is_wrapped() -> None:
    env, params = gymnax.make("MountainCar-v0")

    wrapped = GymnaxWrapper(env, params.replace(max_steps_in_episode=4), categorical_action_encoding=False)

    check_env_specs(wrapped)
    assert wrapped.rollout(10)["next", "truncated"].flatten().tolist() == [False] * 3 + [True]


@pytest.mark.slow
@pytest.mark.parametrize("name", GymnaxEnv.available_envs)
def test_every_environment_fits_its_specs(name: str) -> None:
    check_env_specs(GymnaxEnv(name, batch_size=2), seed=0)
