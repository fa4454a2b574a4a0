"""MO-Gymnasium's environments return the library's data and vector rewards."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

mo_gymnasium = pytest.importorskip("mo_gymnasium")
pytest.importorskip("steppe_mo_gym")

import gymnasium  # noqa: E402

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env  # noqa: E402
from steppe.envs import check_env_specs  # noqa: E402
from steppe.errors import EnvNotFound, NotSupported  # noqa: E402
from steppe_mo_gym import MOGymEnv, MOGymWrapper  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.matrix]

IDS = [
    "deep-sea-treasure-v0",
    "deep-sea-treasure-concave-v0",
    "resource-gathering-v0",
    "fishwood-v0",
    "four-room-v0",
    "minecart-v0",
    "mo-mountaincar-v0",
    "mo-mountaincarcontinuous-v0",
    "mo-lunar-lander-v3",
    "mo-halfcheetah-v5",
    "mo-hopper-v5",
    "mo-reacher-v5",
]
STEPS = 60


def raw_env(name):
    missing = {"mo-lunar": "Box2D", "mo-half": "mujoco", "mo-hop": "mujoco", "mo-reach": "mujoco"}
    for prefix, module in missing.items():
        if name.startswith(prefix):
            pytest.importorskip(module)
    return mo_gymnasium.make(name, max_episode_steps=25)


def draw(space, n):
    rng = np.random.default_rng(0)
    if isinstance(space, gymnasium.spaces.Discrete):
        return [int(rng.integers(space.n)) for _ in range(n)]
    return [rng.uniform(space.low, space.high).astype(space.dtype) for _ in range(n)]


def values(env, observation):
    spec = env.full_observation_spec["observation"]
    return np.asarray(observation).astype(torch.empty(0, dtype=spec.dtype).numpy().dtype)


@pytest.mark.parametrize("seed", [0, 1, 9])
@pytest.mark.parametrize("name", IDS)
def test_rollout_equals_the_library_over_episode_ends(name, seed):
    raw = raw_env(name)
    env = MOGymEnv(name, categorical_action_encoding=True, max_episode_steps=25)
    actions = draw(raw.action_space, STEPS)
    env.set_seed(seed)
    given = torch.as_tensor(np.stack(actions))
    data = env.rollout(STEPS, actions=given, break_when_any_done=False)

    root, _ = raw.reset(seed=seed)
    for t, action in enumerate(actions):
        np.testing.assert_array_equal(values(env, root), data["observation"][t].numpy())
        root, reward, terminated, truncated, _ = raw.step(action)
        after = data["next"][t]
        np.testing.assert_array_equal(values(env, root), after["observation"].numpy())
        np.testing.assert_array_equal(np.asarray(reward, np.float32), after["reward"].numpy())
        assert (terminated, truncated) == (after["terminated"].item(), after["truncated"].item())
        if terminated or truncated:
            root, _ = raw.reset()
    assert data["next", "done"].sum() >= 2


def by_rollout(env, seed, actions):
    env.set_seed(seed)
    return env.rollout(len(actions), actions=actions, break_when_any_done=False)


@pytest.mark.parametrize("name", IDS)
def test_steps_and_batches_match_rollouts_of_single_envs(name):
    raw_env(name)
    make = partial(MOGymEnv, name, categorical_action_encoding=True, max_episode_steps=25)
    env, seeds = make(), [3]
    while len(seeds) < 3:
        seeds.append(env.set_seed(seeds[-1]))
    actions = torch.stack([env.full_action_spec.rand((STEPS,))["action"] for _ in seeds], 1)
    singles = [by_rollout(env, seed, actions[:, row]) for row, seed in enumerate(seeds)]

    env.set_seed(seeds[0])
    td, steps = env.reset(), []
    for action in actions[:, 0]:
        td["action"] = action
        step, td = env.step_and_maybe_reset(td)
        steps.append(step)
    assert (torch.stack(steps) == singles[0]).all()

    for kind in (SerialEnv, partial(ParallelEnv, num_processes=2)):
        with kind(3, make) as batch:
            data = by_rollout(batch, seeds[0], actions)
        for row, single in enumerate(singles):
            assert (data[row] == single).all()


def test_a_collector_equals_the_library():
    env = MOGymEnv("deep-sea-treasure-v0", categorical_action_encoding=True, max_episode_steps=25)
    env.set_seed(4)
    collector = SyncDataCollector(env, None, frames_per_batch=40, total_frames=120)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    raw = raw_env("deep-sea-treasure-v0")
    root, _ = raw.reset(seed=4)
    for step in data:
        np.testing.assert_array_equal(values(env, root), step["observation"].numpy())
        root, reward, terminated, truncated, _ = raw.step(step["action"].item())
        np.testing.assert_array_equal(np.asarray(reward, np.float32), step["next", "reward"].numpy())
        assert (terminated, truncated) == (step["next", "terminated"].item(), step["next", "truncated"].item())
        if terminated or truncated:
            root, _ = raw.reset()
    assert data["next", "done"].sum() >= 2


def test_the_reward_is_a_vector():
    env = make_env("mo-gym:minecart-v0")

    assert env.reward_spec.shape == (3,)
    assert env.row_writer is not None
    check_env_specs(env)


def test_a_batch_has_rows_of_vectors():
    env = MOGymEnv("deep-sea-treasure-v0", 3)
    env.set_seed(0)
    data = env.rollout(20, break_when_any_done=False)
    env.close()

    assert data["next", "reward"].shape == (3, 20, 2)


def test_a_version_without_processes_names_the_other_modes(monkeypatch):
    """MO-Gymnasium before 1.3.2 has no MOAsyncVectorEnv."""
    monkeypatch.delattr(mo_gymnasium.wrappers.vector, "MOAsyncVectorEnv", raising=False)
    with pytest.raises(NotSupported, match=r"must be 'sync' or 'vector_entry_point', found 'async'"):
        MOGymEnv("deep-sea-treasure-v0", 3, vectorization_mode="async")


def test_wrapper():
    env = MOGymWrapper(mo_gymnasium.make("deep-sea-treasure-v0"))

    assert env.rollout(2)["next", "reward"].shape[-1] == 2


def test_unknown_names_are_suggested_from_its_own():
    with pytest.raises(EnvNotFound, match=r"Plugin 'mo-gym'.*Did you mean 'minecart-v0'"):
        make_env("mo-gym:minecraft-v0")


def test_names_are_listed():
    assert set(IDS) <= set(MOGymEnv.available_envs)
    assert "CartPole-v1" not in MOGymEnv.available_envs
