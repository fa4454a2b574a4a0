"""Jumanji in steppe equals Jumanji over the ends of episodes: in batches, worker processes and collectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("jumanji")

import jax
import jumanji

from steppe import ParallelEnv, SerialEnv, SyncDataCollector
from steppe.envs import next_seed
from steppe.registry import env_factory
from steppe_jumanji import JumanjiEnv

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

#: A board on which snakes have no way out after a few steps.
SMALL = {"num_rows": 3, "num_cols": 3, "time_limit": 40}


def assert_equal_to_library(data: Any, seed: int) -> None:
    """Take the actions of data ``[n, T]`` with compiled functions of Jumanji, and compare all entries.

    The rows must end at different steps, so that resets are partial.
    """
    env, n = jumanji.make("Snake-v1", **SMALL), len(data)
    begin, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    chain, key = jax.random.split(jax.random.PRNGKey(seed))
    state, timestep = begin(jax.random.split(key, n))
    for t in range(data.shape[1]):
        row, following = data[:, t], data["next"][:, t]
        for name, value in timestep.observation._asdict().items():
            np.testing.assert_array_equal(row[name].numpy(), np.asarray(value))
        state, timestep = step(state, jax.numpy.asarray(row["action"].numpy(), env.action_spec.dtype))
        for name, value in timestep.observation._asdict().items():
            np.testing.assert_array_equal(following[name].numpy(), np.asarray(value))
        np.testing.assert_array_equal(following["reward"][:, 0].numpy(), np.asarray(timestep.reward))
        last, lost = np.asarray(timestep.step_type) == 2, np.asarray(timestep.discount) == 0
        np.testing.assert_array_equal(following["terminated"][:, 0].numpy(), last & lost)
        np.testing.assert_array_equal(following["truncated"][:, 0].numpy(), last & ~lost)
        if last.any():
            chain, key = jax.random.split(chain)

            def chosen(new: Any, old: Any, last: Any = last) -> Any:
                return jax.numpy.where(last.reshape(-1, *[1] * (old.ndim - 1)), new, old)

            state, timestep = jax.tree_util.tree_map(chosen, begin(jax.random.split(key, n)), (state, timestep))


@pytest.mark.parametrize("n", [3, 40])
def test_partial_resets_equal_the_library(n: int) -> None:
    """The first size resets all rows together, the second a group of them."""
    env = JumanjiEnv("Snake-v1", batch_size=n, **SMALL)
    env.set_seed(5)

    data = env.rollout(60, break_when_any_done=False)

    ended = data["next", "done"][..., 0]
    assert ended.any()
    assert (ended.any(0) & ~ended.all(0)).any()
    assert_equal_to_library(data, 5)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind: Any) -> None:
    batch = kind(2, env_factory("jumanji:Snake-v1", state_in_data=False, **SMALL))
    batch.set_seed(3)
    data = batch.rollout(60, break_when_any_done=False)
    batch.close()

    for row, seed in zip(data, (3, next_seed(3)), strict=True):
        assert_equal_to_library(row[None], seed)


def test_a_collector_equals_the_library() -> None:
    env = JumanjiEnv("Snake-v1", batch_size=3, **SMALL)
    env.set_seed(8)
    collector = SyncDataCollector(env, None, frames_per_batch=60, total_frames=120)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 8)
