"""An environment of a library that resets itself inside a step, against the library."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from steppe import ParallelEnv, SerialEnv, StepCounter, check_env_specs
from steppe_gym import GymEnv

STEPS = 60


class AutoResettingGymEnv(GymEnv):
    def _step(self, tensordict):
        tensordict = super()._step(tensordict)
        if tensordict["done"].any():
            td_reset = super().reset()
            tensordict.update(td_reset.exclude(*self.done_keys))
        return tensordict

    def _reset(self, tensordict=None):
        if tensordict is not None and "_reset" in tensordict:
            return tensordict.copy()
        return super()._reset(tensordict)


def make():
    return AutoResettingGymEnv("CartPole-v1", auto_reset=True, auto_reset_replace=True)


def raw(seed, actions):
    """Return the data of the library, with resets by hand."""
    env = gymnasium.make("CartPole-v1")
    root, _ = env.reset(seed=seed)
    roots, following, ends = [], [], []
    for action in actions:
        roots.append(root)
        root, _, terminated, truncated, _ = env.step(action)
        following.append(root)
        ends.append(terminated or truncated)
        if ends[-1]:
            root, _ = env.reset()
    return np.array(roots), np.array(following), np.array(ends)


def assert_is_raw(data, seed):
    roots, following, ends = raw(seed, data["action"].argmax(-1).tolist())

    assert ends.sum() >= 2
    np.testing.assert_array_equal(data["next", "done"].squeeze(-1).numpy(), ends)
    np.testing.assert_array_equal(data["observation"].numpy(), roots)
    np.testing.assert_array_equal(data["next", "observation"].numpy()[~ends], following[~ends])
    assert data["next", "observation"][ends].isnan().all()


def test_episodes_end_and_restart_as_in_the_library():
    env = make()
    env.set_seed(0)

    assert_is_raw(env.rollout(STEPS, break_when_any_done=False), 0)
    check_env_specs(env)


def test_transforms_see_its_resets():
    env = make().append_transform(StepCounter())
    env.set_seed(0)
    data = env.rollout(STEPS, break_when_any_done=False)

    assert_is_raw(data, 0)
    begins = [True, *data["next", "done"].squeeze(-1)[:-1].tolist()]
    assert (data["step_count"].squeeze(-1) == 0).tolist() == begins


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_each_row_of_a_batch_resets_itself(kind):
    env = kind(2, make)
    try:
        env.set_seed(0)
        data = env.rollout(STEPS, break_when_any_done=False)
        seeds = [0, make().set_seed(0)]
        for row, seed in zip(data.unbind(0), seeds, strict=True):
            assert_is_raw(row, seed)
    finally:
        env.close()
