"""Masks of the combinations of a MultiDiscrete action."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("gymnasium")
pytest.importorskip("steppe_pools")

import gymnasium

from steppe import (
    ParallelEnv,
    ProcessorAsyncEnvPool,
    SerialEnv,
    SyncDataCollector,
    ThreadingAsyncEnvPool,
    TransformedEnv,
)
from steppe.transforms import ActionMask
from steppe_gym import GymEnv, GymWrapper

COUNTS = (3, 4)


class Diagonal(gymnasium.Env):
    """Allows actions whose sum is even or odd, in turn; it raises an error for all others."""

    def __init__(self, shape):
        self.shape = shape
        self.action_space = gymnasium.spaces.MultiDiscrete(COUNTS)
        mask = gymnasium.spaces.MultiBinary(shape)
        self.observation_space = gymnasium.spaces.Dict(action_mask=mask, x=gymnasium.spaces.Box(-1, 1, (2,)))

    def _seen(self):
        self.mask = np.add.outer(*map(np.arange, COUNTS)) % 2 == self.count % 2
        return {"action_mask": self.mask.reshape(self.shape).astype(np.int8), "x": np.zeros(2, np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._seen(), {}

    def step(self, action):
        assert self.mask[tuple(action)], action
        self.count += 1
        return self._seen(), 1.0, self.count == 5, False, {}


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("shape", [COUNTS, (12,)])
def test_random_actions_follow_a_joint_mask(shape, categorical):
    def make():
        return TransformedEnv(GymWrapper(Diagonal(shape), categorical_action_encoding=categorical), ActionMask())

    for env in (make(), SerialEnv(2, make), ParallelEnv(2, make, num_processes=1)):
        with closing(env):
            assert env.rollout(12, break_when_any_done=False)["next", "reward"].sum() == 12 * env.numel()
    with SyncDataCollector(make(), None, frames_per_batch=12, total_frames=12) as collector:
        assert next(iter(collector))["next", "reward"].sum() == 12


@pytest.fixture
def registered():
    gymnasium.register("Diagonal-v0", entry_point=Diagonal)
    yield "Diagonal-v0"
    del gymnasium.registry["Diagonal-v0"]


@pytest.mark.parametrize("categorical", [False, True])
@pytest.mark.parametrize("shape", [COUNTS, (12,)])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_vector_environment_follows_joint_masks(registered, shape, categorical, mode):
    batch = GymEnv(
        registered, num_envs=3, shape=shape, vectorization_mode=mode, categorical_action_encoding=categorical
    )
    with closing(TransformedEnv(batch, ActionMask())) as env:
        data = env.rollout(170, break_when_any_done=False)

    # The environment would raise an error for an action that its mask forbids.
    assert data["next", "reward"].sum() == 170 * 3
    assert data["next", "done"].sum() >= 100


@pytest.mark.parametrize("pool", [ThreadingAsyncEnvPool, ProcessorAsyncEnvPool])
@pytest.mark.parametrize("shape", [COUNTS, (12,)])
def test_a_pool_follows_joint_masks(pool, shape):
    make = lambda: TransformedEnv(GymWrapper(Diagonal(shape)), ActionMask())  # noqa: E731
    with closing(pool([make] * 2)) as env:
        data = env.rollout(8, break_when_any_done=False)

    assert data["next", "reward"].sum() == 8 * 2
