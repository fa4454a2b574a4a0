"""Smoke tests of steppe-openspiel, for the session ``tests``."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspiel")

from steppe import SerialEnv, check_env_specs, make_env
from steppe.errors import EnvNotFound

pytestmark = pytest.mark.matrix


@pytest.mark.parametrize("name", ["tic_tac_toe", "kuhn_poker(players=3)", "matrix_rps"])
def test_games_are_made_by_their_names(name):
    env = make_env(f"openspiel:{name}")

    check_env_specs(env, seed=0)
    assert env.no_row_writer_reason is None


def test_a_batch_steps_several_games():
    batch = SerialEnv(2, "openspiel:goofspiel")
    batch.set_seed(0)

    data = batch.rollout(14, break_when_any_done=False)

    assert data["next", "agents", "reward"].shape == (2, 14, 2, 1)
    assert data["next", "done"].sum() == 2


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'tic_tac_toe'"):
        make_env("openspiel:tictac_toe")
