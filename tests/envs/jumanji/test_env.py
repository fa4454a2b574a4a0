"""Jumanji in steppe, compared with Jumanji itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

pytest.importorskip("jumanji")

import jax
import jax.numpy as jnp
import jumanji

from steppe import ParallelEnv, SerialEnv, check_env_specs, make_env
from steppe.specs import Bounded, Categorical, MultiCategorical, MultiOneHot
from steppe_jumanji import JumanjiEnv

pytestmark = [pytest.mark.library, pytest.mark.filterwarnings("ignore")]

SMALL = {"num_rows": 4, "num_cols": 4, "time_limit": 6}


@pytest.mark.matrix
@pytest.mark.parametrize("state_in_data", [False, True], ids=["kept", "in the data"])
@pytest.mark.parametrize(("name", "kwargs"), [("Snake-v1", SMALL), ("Cleaner-v0", {})], ids=["Snake", "Cleaner"])
def test_a_rollout_has_the_data_of_jumanji(name: str, kwargs: Any, state_in_data: bool) -> None:
    env = JumanjiEnv(name, batch_size=2, state_in_data=state_in_data, **kwargs)
    env.set_seed(5)
    data = env.rollout(8)
    raw = jumanji.make(name, **kwargs)
    step = jax.jit(jax.vmap(raw.step))

    keys = jax.random.split(jax.random.split(jax.random.PRNGKey(5))[1], 2)
    state, timestep = jax.jit(jax.vmap(raw.reset))(keys)
    for t in range(data.shape[1]):
        seen = timestep.observation._asdict()
        for field, value in seen.items():
            np.testing.assert_allclose(data[field][:, t], value)
        action = jnp.asarray(data["action"][:, t].numpy(), raw.action_spec.dtype)
        state, timestep = step(state, action)
        np.testing.assert_allclose(data["next", "reward"][:, t, 0], timestep.reward)
        last, lost = np.asarray(timestep.step_type) == 2, np.asarray(timestep.discount) == 0
        np.testing.assert_array_equal(data["next", "terminated"][:, t, 0], last & lost)
        np.testing.assert_array_equal(data["next", "truncated"][:, t, 0], last & ~lost)


@pytest.mark.matrix
def test_a_state_is_tried_in_several_ways_at_once() -> None:
    env = make_env("jumanji:Snake-v1", **SMALL)
    env.set_seed(0)
    root = env.reset()

    rows = torch.stack([root.clone() for _ in range(4)]).set("action", torch.arange(4))
    together = env.step(rows)["next"]

    for action in range(4):
        alone = env.step(root.clone().set("action", torch.tensor(action)))["next"]
        for key in alone.keys(True, True):
            torch.testing.assert_close(together[action].get(key), alone.get(key))


@pytest.mark.parametrize("categorical", [True, False])
@pytest.mark.parametrize(
    ("name", "kwargs"), [("Snake-v1", SMALL), ("Cleaner-v0", {"time_limit": 9}), ("Tetris-v0", {})]
)
def test_random_actions_keep_to_the_mask(name: str, kwargs: Any, categorical: bool) -> None:
    """The masks of a hundred episodes, which the data has as Jumanji gives them, allow each action."""
    env = JumanjiEnv(name, categorical_action_encoding=categorical, batch_size=32, **kwargs)
    env.set_seed(0)
    data = env.rollout(90, break_when_any_done=False).reshape(-1)
    assert data["next", "done"].sum() >= 100
    action, mask = data["action"], data["action_mask"]
    if not categorical:
        parts = action.split(env.one_hot_sizes, -1)
        assert all(bool((part.sum(-1) == 1).all()) for part in parts)
        numbers = torch.stack([part.int().argmax(-1) for part in parts], -1)
        action = numbers[..., 0] if name == "Snake-v1" else numbers

    if name == "Snake-v1":
        allowed = mask.gather(-1, action.unsqueeze(-1))
    elif name == "Cleaner-v0":
        allowed = mask.gather(-1, action.unsqueeze(-1)) | ~mask.any(-1, keepdim=True)
    else:
        allowed = mask[torch.arange(len(mask)), action[:, 0], action[:, 1]] | ~mask.flatten(1).any(-1)
    assert allowed.all()


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_random_actions_of_a_batch_keep_to_the_masks(kind: Any) -> None:
    batch = kind(2, "jumanji:Snake-v1", create_env_kwargs=SMALL)
    try:
        batch.set_seed(1)
        data = batch.rollout(12, break_when_any_done=False)
    finally:
        batch.close()

    allowed = data["action_mask"].gather(-1, data["action"].unsqueeze(-1))[..., 0]
    assert allowed.all()
    assert data["next", "done"].any()
    assert not data["action_mask"].all()


@pytest.mark.matrix
def test_specs_match_jumanji() -> None:
    snake, cleaner = JumanjiEnv("Snake-v1"), JumanjiEnv("Cleaner-v0")

    assert isinstance(snake.action_spec, Categorical)
    assert isinstance(cleaner.action_spec, MultiCategorical)
    assert isinstance(JumanjiEnv("Cleaner-v0", categorical_action_encoding=False).action_spec, MultiOneHot)
    assert isinstance(snake.full_observation_spec["grid"], Bounded)
    assert snake.full_observation_spec["step_count"].dtype is torch.int32
    assert snake.full_state_spec["state", "key"].dtype is torch.int32


@pytest.mark.matrix
def test_each_agent_may_have_a_reward() -> None:
    env = JumanjiEnv("Connector-v3" if "Connector-v3" in JumanjiEnv.available_envs else "Connector-v2", batch_size=2)

    data = env.rollout(2)

    assert data["next", "reward"].shape[:2] == (2, 2)
    check_env_specs(env)


def test_nested_observations_are_nested_entries() -> None:
    env = JumanjiEnv("BinPack-v2")

    td = env.reset(TensorDict({}, [2]))

    assert td["ems", "x1"].shape == (2, 40)
    assert td["action_mask"].shape == (2, 40, 20)


def test_parallel_environments_have_the_data_of_serial_ones() -> None:
    found = []
    for cls in (SerialEnv, ParallelEnv):
        batch = cls(2, "jumanji:Snake-v1", create_env_kwargs=SMALL)
        try:
            batch.set_seed(0)
            found.append(batch.rollout(8, break_when_any_done=False).clone())
        finally:
            batch.close()

    for key in found[0].keys(True, True):
        torch.testing.assert_close(found[0][key], found[1][key])


def test_rendering_uses_the_state_in_the_data() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    env = JumanjiEnv("Snake-v1", **SMALL)

    env.render(env.reset())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in JumanjiEnv.available_envs if not name.startswith("Sokoban")])
def test_every_environment_gives_what_its_specs_say(name: str) -> None:
    check_env_specs(JumanjiEnv(name, batch_size=2), seed=0)
