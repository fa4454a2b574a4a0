"""The arguments of TorchRL 0.14.1's transforms of the same names are taken, in its order and with its defaults."""

from __future__ import annotations

import inspect

import pytest

import steppe_norm

EMPTY = inspect.Parameter.empty
KEYS = {"in_keys": None, "out_keys": None}
THEIRS = {
    "ObservationNorm": {
        "loc": None,
        "scale": None,
        **KEYS,
        "in_keys_inv": None,
        "out_keys_inv": None,
        "standard_normal": False,
        "eps": None,
    },
    "RewardScaling": {"loc": EMPTY, "scale": EMPTY, **KEYS, "standard_normal": False},
    "VecNorm": {
        **KEYS,
        "shared_td": None,
        "lock": None,
        "decay": 0.9999,
        "eps": 1e-4,
        "shapes": None,
        "new_api": None,
    },
    "VecNormV2": {
        "in_keys": EMPTY,
        "out_keys": None,
        "lock": None,
        "stateful": True,
        "decay": 0.9999,
        "eps": 1e-4,
        "shared_data": None,
        "reduce_batch_dims": False,
    },
    "ObservationNorm.init_stats": {
        "num_iter": EMPTY,
        "reduce_dim": 0,
        "cat_dim": None,
        "key": None,
        "keep_dims": None,
    },
    "VecNorm.build_td_for_shared_vecnorm": {"env": EMPTY, "keys": None, "memmap": False},
}
METHODS = ("freeze", "unfreeze", "frozen_copy", "denorm", "to_observation_norm", "get_extra_state", "set_extra_state")


@pytest.mark.parametrize("name", THEIRS)
def test_the_arguments_of_torchrl_are_taken(name):
    cls, _, method = name.partition(".")
    function = getattr(getattr(steppe_norm, cls), method) if method else getattr(steppe_norm, cls)

    parameters = {key: one.default for key, one in inspect.signature(function).parameters.items() if key != "self"}

    assert list(parameters.items()) == list(THEIRS[name].items())


@pytest.mark.parametrize("name", ["VecNorm", "VecNormV2"])
def test_vec_norm_has_torchrls_methods_and_attributes(name):
    cls = getattr(steppe_norm, name)

    assert [each for each in (*METHODS, "loc", "scale", "standard_normal") if not hasattr(cls, each)] == []
