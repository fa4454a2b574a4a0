"""Arguments of wrappers that are made by name, apart from those of the library."""

from __future__ import annotations

from typing import Any

from steppe.envs import base_arguments
from steppe.errors import NotSupported

__all__ = ["own_arguments"]

#: Arguments of TorchRL's wrappers. Libraries that take any keyword would ignore them.
_PIXELS = ("from_pixels", "pixels_only", "camera_id", "render_kwargs")


def own_arguments(owner: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Remove the arguments of :class:`JaxEnv`'s base classes from ``kwargs``, and return them.

    The others are for the library.

    >>> from steppe_jax import own_arguments
    >>> kwargs = {"allow_done_after_reset": True, "pixels_only": False, "backend": "spring"}
    >>> own_arguments("SwimmerEnv", kwargs), kwargs
    ({'allow_done_after_reset': True}, {'backend': 'spring'})

    Args:
        owner: name of the class, for the error text.
        kwargs: changed in place. ``from_pixels`` and the like are removed if they ask for nothing.

    Raises:
        NotSupported: pixels were asked for.
    """
    for name in _PIXELS:
        if kwargs.pop(name, None):
            raise NotSupported(
                f"{owner}: {name} is not supported, because steps in JAX render no pixels. Make the environment with "
                "render_mode='rgb_array' if it takes that argument, and call env.render() to draw one environment."
            )
    repeats = {name: kwargs.pop(name) for name in ("frame_skip",) if name in kwargs}
    return {**base_arguments(kwargs), **repeats}
