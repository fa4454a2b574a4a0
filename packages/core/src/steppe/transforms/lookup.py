"""make_transform: make a transform by the name of its class."""

from __future__ import annotations

from typing import Any

import steppe.transforms
from steppe.errors import SpecError
from steppe.transforms.base import Transform

__all__ = ["make_transform"]


def make_transform(name: str, *args: Any, **kwargs: Any) -> Transform:
    """Make a transform of the core, or of any installed package: ``make_transform("StepCounter", max_steps=100)``.

    Args:
        name: name of the class. ``dir(steppe.transforms)`` lists the installed ones.
        *args: positional arguments of the class.
        **kwargs: keyword arguments of the class.

    Raises:
        TransformNotFound: the package of the transform is not installed.
        AttributeError: no package provides the name; the text suggests similar names.
        PluginError: two packages provide the name, or its package is hidden or broken.
        SpecError: the name belongs to an object that is no transform.
    """
    cls = getattr(steppe.transforms, name)
    if not (isinstance(cls, type) and issubclass(cls, Transform)):
        raise SpecError(f"make_transform({name!r}): steppe.transforms.{name} is {cls!r}, which is no Transform.")
    return cls(*args, **kwargs)
