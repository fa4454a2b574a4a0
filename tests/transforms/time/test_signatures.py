"""The arguments are those of TorchRL's transforms of the same names (0.14.1), in their order."""

from __future__ import annotations

import inspect

import pytest

import steppe_time

ARGUMENTS = {
    "AutoResetTransform": "replace fill_float fill_int fill_bool",
    "BurnInTransform": "modules burn_in out_keys",
    "CatFrames": "N dim in_keys out_keys padding padding_value as_inverse reset_key done_key future mask_key",
    "ConditionalSkip": "cond",
    "FrameSkipTransform": "frame_skip",
    "NoopResetEnv": "noops random",
    "RandomTruncationTransform": (
        "min_horizon max_horizon prob first_episode_prob step_count_key truncated_key done_key"
    ),
    "TerminateTransform": "stop write_done",
    "TimeMaxPool": "in_keys out_keys T reset_key",
    "TrajCounter": "out_key repeats",
    "gSDENoise": "state_dim action_dim shape kwargs",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_transform_takes_what_torchrl_takes(name):
    assert list(inspect.signature(getattr(steppe_time, name)).parameters) == ARGUMENTS[name].split()


def test_all_transforms_of_the_package_are_compared():
    assert sorted(steppe_time.__all__) == sorted(ARGUMENTS)
