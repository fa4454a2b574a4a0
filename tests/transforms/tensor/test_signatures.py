"""Whoever knows TorchRL's transforms of tensors makes ours with the same arguments."""

from __future__ import annotations

import inspect

import pytest

import steppe_tensor

KEYS = ["in_keys", "out_keys", "in_keys_inv", "out_keys_inv"]

# Taken from TorchRL 0.14.1.
ARGUMENTS = {
    "BatchSizeTransform": ["batch_size", "reshape_fn", "reset_func", "env_kwarg"],
    "CatTensors": ["in_keys", "out_key", "dim", "del_keys", "unsqueeze_if_oor", "sort"],
    "ClipTransform": [*KEYS, "low", "high"],
    "DTypeCastTransform": ["dtype_in", "dtype_out", *KEYS],
    "DeviceCastTransform": ["device", "orig_device", *KEYS],
    "DoubleToFloat": KEYS,
    "ExcludeTransform": ["excluded_keys", "inverse"],
    "ExpandAs": ["in_key", "ref_key", "out_key"],
    "FiniteTensorDictCheck": [],
    "FlattenObservation": ["first_dim", "last_dim", "in_keys", "out_keys", "allow_positive_dim"],
    "Hash": [*KEYS, "hash_fn", "seed", "use_raw_nontensor", "repertoire"],
    "PermuteTransform": ["dims", *KEYS],
    "PinMemoryTransform": [],
    "RemoveEmptySpecs": KEYS,
    "RenameTransform": [*KEYS, "create_copy"],
    "SelectTransform": ["selected_keys", "keep_rewards", "keep_dones"],
    "SignTransform": KEYS,
    "SqueezeTransform": ["dim", "allow_positive_dim", *KEYS],
    "Stack": ["in_keys", "out_key", "in_key_inv", "out_keys_inv", "dim", "allow_positive_dim", "del_keys"],
    "Timer": ["out_keys", "time_key"],
    "UnaryTransform": [*KEYS, "fn", "inv_fn", "use_raw_nontensor"],
    "UnsqueezeTransform": ["dim", "allow_positive_dim", *KEYS],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_those_of_torchrl_in_its_order(name):
    found = inspect.signature(getattr(steppe_tensor, name)).parameters

    assert list(found) == ARGUMENTS[name]
    assert set(ARGUMENTS) == set(steppe_tensor.__all__)
