"""The arguments of TorchRL 0.14.1's transforms of the same names are taken, in its order and with its defaults."""

from __future__ import annotations

import inspect

import pytest

import steppe.transforms

KEYS = {"in_keys": None, "out_keys": None}
THEIRS = {
    "ToTensorImage": {"from_int": None, "unsqueeze": False, "dtype": None, **KEYS, "shape_tolerant": False},
    "Resize": {"w": inspect.Parameter.empty, "h": None, "interpolation": "bilinear", **KEYS},
    "Crop": {"w": inspect.Parameter.empty, "h": None, "top": 0, "left": 0, **KEYS},
    "CenterCrop": {"w": inspect.Parameter.empty, "h": None, **KEYS},
    "GrayScale": KEYS,
}


@pytest.mark.parametrize("name", THEIRS)
def test_the_arguments_of_torchrl_are_taken(name):
    parameters = inspect.signature(getattr(steppe.transforms, name)).parameters

    ours = {key: parameter.default for key, parameter in parameters.items()}

    assert list(ours.items())[: len(THEIRS[name])] == list(THEIRS[name].items())
