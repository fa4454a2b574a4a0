"""MuJoCo Playground in steppe, compared with Playground itself and with the conformance kit.

Each number of rows is compiled for a minute or more, so the tests share one.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco_playground")

import jax
from mujoco_playground import registry

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound, NotSupported, SpecError
from steppe.registry import env_factory
from steppe_playground import MujocoPlaygroundEnv
from steppe_testing import EnvConformance, PluginConformance

pytestmark = [
    pytest.mark.library,
    pytest.mark.matrix,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),
]

NAME = "CartpoleBalance"


class TestPlugin(PluginConformance):
    namespace = "playground"


class TestABatchThatKeepsItsState(EnvConformance):
    env_id = f"playground:{NAME}"
    kwargs: ClassVar = {"batch_size": 2, "episode_length": 6}
    max_steps = 7


@pytest.fixture(scope="module")
def env() -> MujocoPlaygroundEnv:
    return MujocoPlaygroundEnv(NAME, batch_size=2, episode_length=6)


@pytest.fixture(scope="module")
def raw() -> Any:
    library = registry.load(NAME, config_overrides={"impl": "jax"})
    return jax.jit(jax.vmap(library.reset)), jax.jit(jax.vmap(library.step))


def assert_equal_to_library(raw: Any, data: Any, seed: int) -> None:
    """Take the actions of data ``[n, T]`` with compiled functions of Playground, and compare all entries."""
    reset, step = raw
    n, chain = data.shape[0], jax.random.PRNGKey(seed)
    state = None
    for t in range(data.shape[1]):
        row = data[:, t]
        if t % 6 == 0:
            chain, key = jax.random.split(chain)
            state = reset(jax.random.split(key, n))
        # Compiled functions of the same task may differ in the last digits.
        np.testing.assert_allclose(row["observation"].numpy(), state.obs, rtol=1e-5, atol=1e-6)
        state = step(state, row["action"].numpy())
        np.testing.assert_allclose(row["next", "observation"].numpy(), state.obs, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(row["next", "reward"][:, 0].numpy(), state.reward, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(row["next", "terminated"][:, 0].numpy(), np.asarray(state.done, bool))
        assert (row["next", "truncated"] == (t % 6 == 5)).all()


def test_a_rollout_equals_the_library_over_several_episodes(env: MujocoPlaygroundEnv, raw: Any) -> None:
    env.set_seed(5)

    assert_equal_to_library(raw, env.rollout(20, break_when_any_done=False), 5)


def test_a_collector_equals_the_library(env: MujocoPlaygroundEnv, raw: Any) -> None:
    env.set_seed(6)
    collector = SyncDataCollector(env, None, frames_per_batch=40, total_frames=40)
    data = next(iter(collector)).clone()
    collector.shutdown(close_env=False)

    assert_equal_to_library(raw, data, 6)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_batches_in_a_batch_equal_the_library(kind: Any, raw: Any) -> None:
    batch = kind(2, env_factory(f"playground:{NAME}", batch_size=2, episode_length=6))
    batch.set_seed(7)
    data = batch.rollout(9, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (7, next_seed(7)), strict=True):
        assert_equal_to_library(raw, rows, seed)


def test_a_partial_reset_keeps_other_rows(env: MujocoPlaygroundEnv) -> None:
    env.set_seed(7)
    td = env.rand_step(env.reset())["next"].exclude("reward")

    again = env.reset(td.clone().set("_reset", torch.tensor([[True], [False]])))

    assert (again["observation"] == td["observation"]).all(-1).tolist() == [False, True]


def test_an_unknown_name_gets_a_close_one() -> None:
    with pytest.raises(EnvNotFound, match="Did you mean 'CartpoleBalance'"):
        make_env("playground:CartpoleBalanced")


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"episode_length": 0}, SpecError),
        ({"agent_mapping": "ant_4x2"}, NotSupported),
        ({"frame_skip": 2}, NotSupported),
        ({"from_pixels": True}, NotSupported),
        ({"impl": "jax"}, TypeError),
        ({"num_workers": -1}, ArgumentError),
    ],
)
def test_arguments_without_meaning_are_refused(kwargs: Any, error: Any) -> None:
    with pytest.raises(error):
        MujocoPlaygroundEnv(NAME, **kwargs)


def test_names_are_listed() -> None:
    assert {"CartpoleBalance", "CheetahRun", "Go1Getup"} <= set(MujocoPlaygroundEnv.available_envs)
