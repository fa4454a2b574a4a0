"""Transforms have the arguments of TorchRL 0.14.1, in the same order."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import steppe.transforms

KEYS = "in_keys out_keys in_keys_inv out_keys_inv"
ARGUMENTS = {
    "steppe_action": {
        "ActionDiscretizer": "num_intervals action_key out_action_key sampling categorical",
        "ActionMask": "action_key mask_key",
        "ActionScaling": "in_keys_inv out_keys_inv in_keys out_keys loc scale standard_normal",
        "ConditionalPolicySwitch": "policy condition",
        "DiscreteActionProjection": "num_actions_effective max_actions action_key include_forward",
        "FlattenAction": "first_dim last_dim in_keys_inv out_keys_inv in_keys out_keys allow_positive_dim action_shape",
        "MultiAction": "dim stack_rewards stack_observations action_key chunk_key",
    },
    "steppe_reward": {
        "BinarizeReward": "in_keys out_keys",
        "LineariseRewards": "in_keys out_keys weights",
        "Reward2GoTransform": "gamma in_keys out_keys done_key",
        "RewardClipping": "clamp_min clamp_max in_keys out_keys",
        "RewardSum": "in_keys out_keys reset_keys reward_spec",
        "SuccessReward": "success_key reward_key scale",
        "TargetReturn": "target_return mode in_keys out_keys reset_key",
    },
    "steppe_tensor": {
        "BatchSizeTransform": "batch_size reshape_fn reset_func env_kwarg",
        "CatTensors": "in_keys out_key dim del_keys unsqueeze_if_oor sort",
        "ClipTransform": f"{KEYS} low high",
        "DTypeCastTransform": f"dtype_in dtype_out {KEYS}",
        "DeviceCastTransform": f"device orig_device {KEYS}",
        "DoubleToFloat": KEYS,
        "ExcludeTransform": "excluded_keys inverse",
        "ExpandAs": "in_key ref_key out_key",
        "FiniteTensorDictCheck": "",
        "FlattenObservation": "first_dim last_dim in_keys out_keys allow_positive_dim",
        "Hash": f"{KEYS} hash_fn seed use_raw_nontensor repertoire",
        "PermuteTransform": f"dims {KEYS}",
        "PinMemoryTransform": "",
        "RemoveEmptySpecs": KEYS,
        "RenameTransform": f"{KEYS} create_copy",
        "SelectTransform": "selected_keys keep_rewards keep_dones",
        "SignTransform": KEYS,
        "SqueezeTransform": f"dim allow_positive_dim {KEYS}",
        "Stack": "in_keys out_key in_key_inv out_keys_inv dim allow_positive_dim del_keys",
        "Timer": "out_keys time_key",
        "UnaryTransform": f"{KEYS} fn inv_fn use_raw_nontensor",
        "UnsqueezeTransform": f"dim allow_positive_dim {KEYS}",
    },
    "steppe_time": {
        "AutoResetTransform": "replace fill_float fill_int fill_bool",
        "BurnInTransform": "modules burn_in out_keys",
        "CatFrames": "N dim in_keys out_keys padding padding_value as_inverse reset_key done_key future mask_key",
        "ConditionalSkip": "cond",
        "FrameSkipTransform": "frame_skip",
        "MultiStepTransform": "n_steps gamma reward_keys done_key done_keys mask_key",
        "NextStateReconstructor": "keys traj_key done_key step_count_key fill_value strict",
        "NoopResetEnv": "noops random",
        "RandomCropTensorDict": "sub_seq_len sample_dim mask_key",
        "RandomTruncationTransform": (
            "min_horizon max_horizon prob first_episode_prob step_count_key truncated_key done_key"
        ),
        "TensorDictPrimer": "primers random default_value reset_key expand_specs kwargs",
        "TerminateTransform": "stop write_done",
        "TimeMaxPool": "in_keys out_keys T reset_key",
        "TrajCounter": "out_key repeats",
        "gSDENoise": "state_dim action_dim shape kwargs",
    },
}


@pytest.mark.parametrize(("package", "name"), [(package, name) for package in ARGUMENTS for name in ARGUMENTS[package]])
def test_a_transform_takes_what_torchrl_takes(package, name):
    parameters = inspect.signature(getattr(import_module(package), name)).parameters

    assert list(parameters) == ARGUMENTS[package][name].split()


@pytest.mark.parametrize("name", dir(steppe.transforms))
def test_help_shows_the_type_of_each_argument(name):
    parameters = inspect.signature(getattr(steppe.transforms, name)).parameters.values()
    named = [each for each in parameters if each.kind is not each.VAR_KEYWORD]

    assert [str(each) for each in named if each.annotation is each.empty] == []
    assert [str(each) for each in named if "Any" in str(each.annotation)] == []


@pytest.mark.parametrize("package", ARGUMENTS)
def test_all_transforms_of_a_package_are_compared(package):
    # TorchRL makes a CallableTransform of a function by itself, and has no public class of that name.
    module = import_module(package)
    classes = {name for name in module.__all__ if isinstance(getattr(module, name), type)}
    transforms = {name for name in classes if issubclass(getattr(module, name), steppe.Transform)}
    assert sorted(transforms - {"CallableTransform"}) == sorted(ARGUMENTS[package])
