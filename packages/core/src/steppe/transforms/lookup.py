"""make_transform: a transform made by the name of its class."""

from __future__ import annotations

from typing import Any

import steppe.transforms
from steppe.errors import SpecError
from steppe.transforms.base import Transform

__all__ = ["make_transform"]


def make_transform(name: str, *args: Any, **kwargs: Any) -> Transform:
    """Make a transform of the core, or of any installed package: ``make_transform("StepCounter", max_steps=100)``.

    Args:
        name: of its class. ``dir(steppe.transforms)`` lists what there is.
        *args: for the class.
        **kwargs: the same.

    Raises:
        TransformNotFound: a known package has it, and is not installed.
        AttributeError: nobody has it; the text suggests names that are like it.
        PluginError: two packages have it, or its package is hidden or broken.
        SpecError: what has that name is no transform.
    """
    found = getattr(steppe.transforms, name)
    if not (isinstance(found, type) and issubclass(found, Transform)):
        raise SpecError(f"make_transform({name!r}): steppe.transforms.{name} is {found!r}, which is no Transform.")
    return found(*args, **kwargs)
