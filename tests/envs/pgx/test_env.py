"""Pgx in steppe, compared with Pgx itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("pgx")

import jax
import pgx

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs
from steppe.envs import next_seed
from steppe.registry import env_factory
from steppe_pgx import PgxEnv

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def assert_equal_to_library(name: str, data: Any, seed: int) -> None:
    """Take the actions of data ``[n, T]`` with compiled functions of Pgx, and compare all entries."""
    env = pgx.make(name)
    begin, step = jax.jit(jax.vmap(env.init)), jax.jit(jax.vmap(env.step))
    n = data.shape[0]
    chain = jax.random.PRNGKey(seed)

    def first(chain: Any) -> Any:
        chain, key = jax.random.split(chain)
        pairs = jax.vmap(jax.random.split)(jax.random.split(key, n))
        return chain, pairs[:, 0], begin(pairs[:, 1])

    def compare(td: Any, state: Any) -> None:
        np.testing.assert_array_equal(td["observation"].numpy(), np.asarray(state.observation))
        np.testing.assert_array_equal(td["action_mask"].numpy(), np.asarray(state.legal_action_mask))
        np.testing.assert_array_equal(td["current_player"].numpy(), np.asarray(state.current_player))

    chain, keys, state = first(chain)
    for t in range(data.shape[1]):
        row = data[:, t]
        compare(row, state)
        assert row["action_mask"].gather(-1, row["action"][:, None]).all()
        pairs = jax.vmap(jax.random.split)(keys)
        keys, state = pairs[:, 0], step(state, row["action"].numpy().astype(np.int32), pairs[:, 1])
        compare(row["next"], state)
        np.testing.assert_array_equal(row["next", "reward"].numpy(), np.asarray(state.rewards))
        done = np.asarray(state.terminated | state.truncated)
        np.testing.assert_array_equal(row["next", "done"][:, 0].numpy(), done)
        np.testing.assert_array_equal(row["next", "terminated"][:, 0].numpy(), np.asarray(state.terminated))
        if done.any():
            chain, new_keys, new_state = first(chain)

            def chosen(new: Any, old: Any, done: Any = done) -> Any:
                return jax.numpy.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old)

            keys, state = jax.tree_util.tree_map(chosen, (new_keys, new_state), (keys, state))


@pytest.mark.parametrize("name", ["tic_tac_toe", "leduc_holdem", "connect_four"])
def test_a_rollout_equals_the_library_over_several_games(name: str) -> None:
    env = PgxEnv(name, batch_size=4)
    env.set_seed(5)

    data = env.rollout(50, break_when_any_done=False)

    assert data["next", "done"].any()
    assert_equal_to_library(name, data, 5)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind: Any) -> None:
    batch = kind(2, env_factory("pgx:tic_tac_toe", state_in_data=False))
    batch.set_seed(3)
    data = batch.rollout(25, break_when_any_done=False)
    batch.close()

    for row, seed in zip(data, (3, next_seed(3)), strict=True):
        assert_equal_to_library("tic_tac_toe", row[None], seed)


def test_a_collector_equals_the_library() -> None:
    env = PgxEnv("leduc_holdem", batch_size=3)
    env.set_seed(8)
    collector = SyncDataCollector(env, None, frames_per_batch=60, total_frames=120)
    data = torch.cat([one.clone() for one in collector], -1)
    collector.shutdown()

    assert_equal_to_library("leduc_holdem", data, 8)


@pytest.mark.parametrize(
    ("name", "categorical"),
    [
        ("tic_tac_toe", True),
        ("tic_tac_toe", False),
        ("connect_four", True),
        ("leduc_holdem", True),
        ("kuhn_poker", False),
    ],
)
def test_random_actions_are_legal_in_a_hundred_games(name: str, categorical: bool) -> None:
    """The masks equal the library's own: see ``assert_equal_to_library``."""
    env = PgxEnv(name, batch_size=16, categorical_action_encoding=categorical)
    env.set_seed(0)
    data = env.rollout(260 if name == "connect_four" else 70, break_when_any_done=False)

    action = data["action"] if categorical else data["action"].int().argmax(-1)
    assert data["next", "done"].sum() >= 100
    assert data["action_mask"].gather(-1, action.unsqueeze(-1)).all()


def test_each_player_gets_its_reward() -> None:
    env = PgxEnv("tic_tac_toe", batch_size=16)
    env.set_seed(1)
    data = env.rollout(60, break_when_any_done=False)

    ended = data["next", "done"][..., 0]
    assert not data["next", "reward"][~ended].any()
    assert (data["next", "reward"].sum(-1) == 0).all()
    won = data["next", "reward"].max(-1).values == 1
    winner = data["next", "reward"].argmax(-1)
    assert torch.equal(winner[won], data["current_player"].long()[won]), "who makes the last move wins"


def test_pgx_draws_who_begins() -> None:
    env = PgxEnv("tic_tac_toe", batch_size=32)
    env.set_seed(0)

    assert set(env.reset()["current_player"].tolist()) == {0, 1}


def test_a_position_is_tried_with_several_actions() -> None:
    env = PgxEnv("connect_four")
    env.set_seed(0)
    root = env.reset()
    rows = torch.stack([root.clone() for _ in range(7)]).set("action", torch.arange(7))

    following = env.step(rows)["next"]

    assert len({tuple(row.flatten().tolist()) for row in following["observation"]}) == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(PgxEnv.available_envs) - {"go_19x19", "shogi"}))
def test_every_game_fits_its_specs(name: str) -> None:
    if name.startswith("minatar"):
        pytest.importorskip("pgx_minatar")
    check_env_specs(PgxEnv(name, batch_size=2), seed=0)
