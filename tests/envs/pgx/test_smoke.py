"""The shortest way through steppe-pgx."""

from __future__ import annotations

import pytest

pytest.importorskip("pgx")

from steppe import check_env_specs, make_env
from steppe.errors import EnvNotFound, NotSupported
from steppe_pgx import PgxEnv, PgxWrapper

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


def test_games_are_made_by_their_names():
    env = make_env("pgx:tic_tac_toe", batch_size=3)

    check_env_specs(env, seed=0)
    assert env.rollout(4)["next", "reward"].shape == (3, 4, 2)


def test_a_wrong_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'connect_four'"):
        make_env("pgx:connect_4")


def test_other_objects_are_refused():
    with pytest.raises(NotSupported, match=r"pgx\.make"):
        PgxWrapper(object())


def test_names_are_listed():
    assert {"chess", "go_9x9", "2048"} <= set(PgxEnv.available_envs)
