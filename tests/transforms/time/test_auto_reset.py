"""AutoResetTransform: environments that reset themselves inside a step."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import SpecError
from steppe.transforms import AutoResetEnv, AutoResetTransform, Compose, InitTracker, StepCounter, TransformedEnv
from steppe_testing import AutoResettingCountingEnv, AutoResettingHeterogeneousEnv


def squeezed(data, key):
    return data[key].squeeze(-1).tolist()


def self_resetting(**kwargs):
    return AutoResettingCountingEnv(3, auto_reset=False, **kwargs)


def test_the_first_observation_goes_to_the_next_root():
    base = self_resetting(start=5)
    env = TransformedEnv(base, Compose(AutoResetTransform(), StepCounter(), InitTracker()))

    data = env.rollout(7, break_when_any_done=False)

    assert base.resets == 1
    assert squeezed(data, "observation") == [5, 6, 7, 5, 6, 7, 5]
    assert data["next", "observation"].isnan().squeeze(-1).tolist() == [False, False, True, False, False, True, False]
    assert squeezed(data, "step_count") == [0, 1, 2, 0, 1, 2, 0]
    assert squeezed(data, "is_init") == [True, False, False, True, False, False, True]


def test_unknown_observations_have_a_fill_value():
    env = TransformedEnv(self_resetting(dtype=torch.int64), AutoResetTransform(fill_int=-7))
    assert squeezed(env.rollout(3)["next"], "observation") == [1, 2, -7]
    env = TransformedEnv(self_resetting(), AutoResetTransform(replace=False))
    assert squeezed(env.rollout(3)["next"], "observation") == [1, 2, 0]
    env = TransformedEnv(self_resetting(), AutoResetTransform(fill_float=0.5))
    assert squeezed(env.rollout(3)["next"], "observation") == [1, 2, 0.5]


def test_auto_reset_transform_must_come_first():
    env = TransformedEnv(self_resetting(), Compose(StepCounter(), AutoResetTransform()))
    with pytest.raises(SpecError, match=r"insert_transform\(0"):
        env.reset()


def test_an_unfinished_episode_is_really_reset():
    base = self_resetting()
    env = TransformedEnv(base, AutoResetTransform())
    env.rollout(2)
    env.reset()

    assert base.resets == 2
    assert squeezed(env.rollout(3)["next"], "observation")[:2] == [1, 2]


def test_observations_of_unequal_agents_reach_the_next_root():
    env = AutoResettingHeterogeneousEnv(2, auto_reset=False).append_transform(AutoResetTransform())

    data = env.rollout(5, break_when_any_done=False)

    for agent, following in zip(data["agents"].unbind(-1), data["next", "agents"].unbind(-1), strict=True):
        roots, ends = agent["observation"], following["observation"].isnan().all(-1)
        assert ends.tolist() == data["next", "done"].squeeze(-1).tolist() == [False, True, False, True, False]
        assert torch.equal(roots[2], roots[0])
        assert torch.equal(roots[1], following["observation"][0])


def test_auto_reset_env_is_a_transformed_env():
    """An AutoResetEnv, as TorchRL has it, is a TransformedEnv of that name."""
    base = self_resetting(start=5)
    env = AutoResetEnv(base, AutoResetTransform())
    env.append_transform(StepCounter())

    env.check_env_specs()
    env.set_seed(0)
    before = base.resets
    data = env.rollout(7, break_when_any_done=False)

    assert isinstance(env, TransformedEnv)
    assert env.base_env is base
    assert base.resets == before + 1
    assert squeezed(data, "observation") == [5, 6, 7, 5, 6, 7, 5]
    assert squeezed(data, "step_count") == [0, 1, 2, 0, 1, 2, 0]
