"""Craftax in steppe, compared with Craftax itself and with the conformance kit.

The small world of Craftax-Classic is compiled in about 20 s on two cores, so the tests share environments.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

pytest.importorskip("craftax")

import jax
from craftax.craftax_env import make_craftax_env_from_name

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env
from steppe.envs import next_seed
from steppe.errors import EnvNotFound, SpecError
from steppe.registry import env_factory
from steppe_craftax import CraftaxEnv
from steppe_testing import EnvConformance, PluginConformance

pytestmark = [
    pytest.mark.library,
    pytest.mark.matrix,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
]

NAME = "Craftax-Classic-Symbolic-v1"
LIMIT = {"max_timesteps": 12}


class TestPlugin(PluginConformance):
    namespace = "craftax"


class TestABatchThatKeepsItsState(EnvConformance):
    env_id = f"craftax:{NAME}"
    kwargs: ClassVar = {"batch_size": 2, "env_params": LIMIT}
    max_steps = 13


@pytest.fixture(scope="module")
def env() -> CraftaxEnv:
    return CraftaxEnv(NAME, env_params=LIMIT, batch_size=2)


def assert_equal_to_library(data: Any, seed: int) -> None:
    """Take the actions of data ``[n, T]`` with compiled functions of Craftax, and compare all entries."""
    raw = make_craftax_env_from_name(NAME, auto_reset=False)
    params = raw.default_params.replace(**LIMIT)
    n = data.shape[0]
    begin = jax.jit(jax.vmap(lambda key: raw.reset_env(key, params)))
    step = jax.jit(jax.vmap(lambda key, state, action: raw.step_env(key, state, action, params)))
    chain = jax.random.PRNGKey(seed)

    def first(chain: Any) -> Any:
        chain, key = jax.random.split(chain)
        pairs = jax.vmap(jax.random.split)(jax.random.split(key, n))
        return chain, pairs[:, 0], *begin(pairs[:, 1])

    chain, keys, seen, state = first(chain)
    for t in range(data.shape[1]):
        row = data[:, t]
        np.testing.assert_array_equal(row["observation"].numpy(), np.asarray(seen))
        pairs = jax.vmap(jax.random.split)(keys)
        keys = pairs[:, 0]
        seen, state, reward, done, _ = step(pairs[:, 1], state, row["action"].numpy())
        np.testing.assert_array_equal(row["next", "observation"].numpy(), np.asarray(seen))
        np.testing.assert_array_equal(row["next", "reward"][:, 0].numpy(), np.asarray(reward))
        done = np.asarray(done)
        np.testing.assert_array_equal(row["next", "done"][:, 0].numpy(), done)
        assert torch.equal(row["next", "truncated"], row["next", "done"] & ~row["next", "terminated"])
        if done.any():
            assert done.all(), "both worlds last until the limit"
            chain, keys, seen, state = first(chain)


def test_a_rollout_equals_the_library_over_several_episodes(env: CraftaxEnv) -> None:
    env.set_seed(5)
    data = env.rollout(30, break_when_any_done=False)

    assert data["next", "truncated"].sum() == 4
    assert_equal_to_library(data, 5)


def test_a_collector_equals_the_library(env: CraftaxEnv) -> None:
    env.set_seed(6)
    collector = SyncDataCollector(env, None, frames_per_batch=40, total_frames=40)
    data = next(iter(collector)).clone()
    collector.shutdown(close_env=False)

    assert_equal_to_library(data, 6)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_batches_in_a_batch_equal_the_library(kind: Any) -> None:
    batch = kind(2, env_factory(f"craftax:{NAME}", env_params=LIMIT, batch_size=2))
    batch.set_seed(7)
    data = batch.rollout(15, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (7, next_seed(7)), strict=True):
        assert_equal_to_library(rows, seed)


def test_an_unknown_name_gets_a_close_one() -> None:
    with pytest.raises(EnvNotFound, match="Did you mean 'Craftax-Symbolic-v1'"):
        make_env("craftax:Craftax-Symbolic-v2")


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(SpecError, match=r"no parameters \['limit'\].*max_timesteps"):
        CraftaxEnv(NAME, env_params={"limit": 3})


def test_names_are_listed() -> None:
    assert len(CraftaxEnv.available_envs) == 4
