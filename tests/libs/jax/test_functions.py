"""Functions of environments whose steps draw random numbers."""

from __future__ import annotations

from itertools import pairwise

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from steppe.specs import Categorical  # noqa: E402
from steppe_jax import JaxEnv, Outcome, with_random_key  # noqa: E402

pytestmark = pytest.mark.matrix


def outcome(place):
    no = jnp.zeros((), bool)
    return place, Outcome(place, place, no, no)


WALK = with_random_key(
    lambda key: outcome(jax.random.normal(key)),
    lambda key, place, action: outcome(place + jax.random.normal(key)),
    jax.ShapeDtypeStruct((), jnp.int32),
)


def test_each_step_draws_from_another_key():
    (key, place), first = WALK.reset(jax.random.PRNGKey(3))
    places = [place]
    keys = {tuple(key.tolist())}
    for _ in range(5):
        (key, place), result = WALK.step((key, place), jnp.int32(0))
        assert result.observation == place
        keys.add(tuple(key.tolist()))
        places.append(place)

    assert first.observation == places[0]
    assert len(keys) == 6
    assert len({float(after - before) for before, after in pairwise(places)}) == 5


def test_the_key_is_part_of_the_state():
    env = JaxEnv(WALK, action_spec=Categorical(2), batch_size=[2])
    env.set_seed(1)
    data = env.rollout(4)
    env.set_seed(1)

    assert env.rollout(4, actions=list(data.select("action").unbind(-1)))["observation"].equal(data["observation"])
    assert data["observation"].unique().numel() == 8


def test_a_class_without_a_library_has_no_lib():
    env = JaxEnv(WALK, action_spec=Categorical(2))

    with pytest.raises(AttributeError, match="JaxEnv wraps no library: it has no libname"):
        _ = env.lib
