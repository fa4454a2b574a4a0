"""Whoever knows TorchRL's transforms of rewards makes ours with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import steppe_reward

# Taken from TorchRL 0.14.1.
ARGUMENTS = {
    "BinarizeReward": ["in_keys", "out_keys"],
    "LineariseRewards": ["in_keys", "out_keys", "weights"],
    "Reward2GoTransform": ["gamma", "in_keys", "out_keys", "done_key"],
    "RewardClipping": ["clamp_min", "clamp_max", "in_keys", "out_keys"],
    "SuccessReward": ["success_key", "reward_key", "scale"],
    "TargetReturn": ["target_return", "mode", "in_keys", "out_keys", "reset_key"],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_those_of_torchrl_in_its_order(name):
    found = inspect.signature(getattr(steppe_reward, name)).parameters

    assert list(found) == ARGUMENTS[name]
    assert set(ARGUMENTS) == set(steppe_reward.__all__)
