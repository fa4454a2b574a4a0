"""Transforms of environments: the base, and those that environments and collectors need.

Transforms of other installed packages are found here by their names: ``steppe.transforms.Resize`` and ``from
steppe.transforms import Resize`` work once steppe-vision is installed. For a name that a known package would provide
and that is not installed, access raises :class:`~steppe.errors.TransformNotFound`, which is no AttributeError: so
``hasattr(steppe.transforms, "Resize")`` raises too, instead of hiding how to get it. ``dir`` lists the installed ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe.imports import lazy_exports
from steppe.transforms.base import Transform
from steppe.transforms.compiled.entry_kernel import clip_kernel
from steppe.transforms.compiled.transform_hooks import (
    EnvSpecs,
    Hooks,
    InnerWriter,
    RowArrays,
    RowHooks,
    pair_hook,
    set_beside,
    write,
)
from steppe.transforms.compose import Compose
from steppe.transforms.entry_transform import EntryTransform
from steppe.transforms.env_transforms import PlannedTransform, SteppingTransform
from steppe.transforms.observation_transform import ObservationTransform
from steppe.transforms.policy_transforms import transforms_for_policy
from steppe.transforms.row_generators import RowGenerators
from steppe.transforms.spec_decorators import apply_to_composite, apply_to_composite_inv
from steppe.transforms.stored_steps import first_steps, time_dim_of
from steppe.transforms.tracking import InitTracker, StepCounter
from steppe.transforms.transform_keys import as_key, as_keys, keys_property, names_of, replace_last
from steppe.transforms.transformed_env import AutoResetEnv, TransformedEnv

__all__ = [
    "AutoResetEnv",
    "Compose",
    "EntryTransform",
    "EnvSpecs",
    "Hooks",
    "InitTracker",
    "InnerWriter",
    "ObservationTransform",
    "PlannedTransform",
    "RowArrays",
    "RowGenerators",
    "RowHooks",
    "StepCounter",
    "SteppingTransform",
    "Transform",
    "TransformedEnv",
    "apply_to_composite",
    "apply_to_composite_inv",
    "as_key",
    "as_keys",
    "clip_kernel",
    "first_steps",
    "keys_property",
    "names_of",
    "pair_hook",
    "replace_last",
    "set_beside",
    "time_dim_of",
    "transforms_for_policy",
    "write",
]


#: What ``dir`` lists beside the classes of packages; the other names are for authors of transforms.
_FOR_USERS = (
    *("AutoResetEnv", "Compose", "InitTracker", "ObservationTransform", "StepCounter"),
    *("Transform", "TransformedEnv"),
)

__getattr__: Callable[[str], Any] = lazy_exports(__name__, kind="transform")[0]


def __dir__() -> list[str]:
    from steppe.registry import list_classes

    return sorted({*_FOR_USERS, *list_classes("transform")})
