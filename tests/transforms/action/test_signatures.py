"""The arguments are those of TorchRL's transforms of the same names (0.14.1), in their order."""

from __future__ import annotations

import inspect

import pytest

import steppe_action

ARGUMENTS = {
    "ActionDiscretizer": "num_intervals action_key out_action_key sampling categorical",
    "ActionMask": "action_key mask_key",
    "ActionScaling": "in_keys_inv out_keys_inv in_keys out_keys loc scale standard_normal",
    "ConditionalPolicySwitch": "policy condition",
    "DiscreteActionProjection": "num_actions_effective max_actions action_key include_forward",
    "FlattenAction": ("first_dim last_dim in_keys_inv out_keys_inv in_keys out_keys allow_positive_dim action_shape"),
    "MultiAction": "dim stack_rewards stack_observations action_key chunk_key",
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_transform_takes_what_torchrl_takes(name):
    assert list(inspect.signature(getattr(steppe_action, name)).parameters) == ARGUMENTS[name].split()


def test_all_transforms_of_the_package_are_compared():
    assert sorted(steppe_action.__all__) == sorted(ARGUMENTS)
