"""Smoke tests of steppe-pettingzoo, for the session ``tests``."""

from __future__ import annotations

import pytest

pytest.importorskip("pettingzoo")

from steppe import SerialEnv, check_env_specs, make_env


@pytest.mark.parametrize("name", ["mpe2/simple_tag_v3", "classic/tictactoe_v3"])
def test_environments_are_made_by_their_names(name):
    env = make_env(f"pettingzoo:{name}")

    check_env_specs(env, seed=0)
    assert env.rollout(4).batch_size == (4,)


def test_a_batch_steps_several_of_them():
    batch = SerialEnv(2, "pettingzoo:mpe2/simple_tag_v3")
    batch.set_seed(0)

    data = batch.rollout(3)

    assert data["next", "adversary", "reward"].shape == (2, 3, 3, 1)
