"""Transforms of environments: the base, and those that environments and collectors need.

Transforms of other installed packages are found here by their names: ``steppe.transforms.Resize`` and ``from
steppe.transforms import Resize`` work once steppe-vision is installed. For a name that a known package would provide
and that is not installed, access raises :class:`~steppe.errors.TransformNotFound`, which is no AttributeError: so
``hasattr(steppe.transforms, "Resize")`` raises too, instead of hiding how to get it.
"""

from __future__ import annotations

from typing import Any

from steppe.transforms.base import PlannedTransform, Transform
from steppe.transforms.casts import DoubleToFloat, DTypeCastTransform
from steppe.transforms.compose import CallableTransform, Compose
from steppe.transforms.env import TransformedEnv
from steppe.transforms.hooks import EnvSpecs, Hooks
from steppe.transforms.rewards import RewardSum
from steppe.transforms.tracking import InitTracker, StepCounter

__all__ = [
    "CallableTransform",
    "Compose",
    "DTypeCastTransform",
    "DoubleToFloat",
    "EnvSpecs",
    "Hooks",
    "InitTracker",
    "PlannedTransform",
    "RewardSum",
    "StepCounter",
    "Transform",
    "TransformedEnv",
]


def __getattr__(name: str) -> Any:
    from steppe.registry import find_transform

    return find_transform(name, core=__all__)
