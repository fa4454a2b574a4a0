"""Brax in steppe equals Brax over the ends of episodes: in batches, worker processes and collectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("brax")

import jax
from brax import envs
from brax.envs.wrappers.training import EpisodeWrapper, VmapWrapper

from steppe import ParallelEnv, SerialEnv, StepCounter, SyncDataCollector, TransformedEnv
from steppe.envs import next_seed
from steppe.registry import env_factory
from steppe_brax import BraxEnv

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

LIMIT = 5


def assert_equal_to_library(data: Any, seed: int) -> None:
    """Take the actions of data ``[n, T]`` with compiled functions of Brax, and compare all entries."""
    n = len(data)
    env = VmapWrapper(EpisodeWrapper(envs.get_environment("fast"), LIMIT, 1))
    begin, step = jax.jit(env.reset), jax.jit(env.step)
    chain, key = jax.random.split(jax.random.PRNGKey(seed))
    state = begin(jax.random.split(key, n))
    for t in range(data.shape[1]):
        row, following = data[:, t], data["next"][:, t]
        np.testing.assert_array_equal(row["observation"].numpy(), np.asarray(state.obs))
        state = step(state, jax.numpy.asarray(row["action"].numpy()))
        np.testing.assert_array_equal(following["observation"].numpy(), np.asarray(state.obs))
        np.testing.assert_array_equal(following["reward"][:, 0].numpy(), np.asarray(state.reward))
        ended = np.asarray(state.done) > 0
        np.testing.assert_array_equal(following["done"][:, 0].numpy() & ended, ended)
        # A StepCounter around the environment ends rows, too.
        ended = following["done"][:, 0].numpy()
        if ended.any():
            chain, key = jax.random.split(chain)

            def chosen(new: Any, old: Any, ended: Any = ended) -> Any:
                return jax.numpy.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old)

            state = jax.tree_util.tree_map(chosen, begin(jax.random.split(key, n)), state)


@pytest.mark.parametrize("n", [3, 40])
def test_partial_resets_equal_the_library(n: int) -> None:
    """Some rows are reset in the middle of an episode, so that rows end at different steps."""
    env = BraxEnv("fast", batch_size=n, episode_length=LIMIT)
    env.set_seed(3)
    root = env.reset()
    first = env.step(env.rand_action(root.clone()))
    mask = torch.arange(n).unsqueeze(-1) % 3 == 1
    frames = [first, *env.rollout(4, tensordict=env.step_mdp(first), auto_reset=False).unbind(-1)]
    chosen = env.reset(env.step_mdp(frames[-1]).set("_reset", mask | frames[-1]["next", "done"]))
    rest = env.rollout(12, tensordict=chosen, auto_reset=False, break_when_any_done=False)

    frames[-1]["next", "done"] |= mask
    data = torch.cat([torch.stack(frames, -1), rest], -1)
    assert_equal_to_library(data, 3)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind: Any) -> None:
    batch = kind(2, env_factory("brax:fast", state_in_data=False, episode_length=LIMIT))
    batch.set_seed(3)
    data = batch.rollout(3 * LIMIT, break_when_any_done=False)
    batch.close()

    for row, seed in zip(data, (3, next_seed(3)), strict=True):
        assert_equal_to_library(row[None], seed)


def test_a_collector_equals_the_library() -> None:
    env = TransformedEnv(BraxEnv("fast", batch_size=3, episode_length=LIMIT), StepCounter(max_steps=3))
    env.set_seed(8)
    collector = SyncDataCollector(env, None, frames_per_batch=60, total_frames=120)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert data["next", "done"].sum() == 3 * (40 // 3)
    assert_equal_to_library(data, 8)
