"""Refuses environments of a library that are a batch already, or that reset themselves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from steppe.errors import NotSupported

__all__ = ["check_single"]


def check_single(env: Any, own_rows: Collection[str], *, wrapper: str, hint: str = "") -> None:
    """Refuse an environment with a wrapper that makes a batch of it or resets it: ``JaxEnv`` does both.

    Args:
        env: an environment of the library, and those in it, as ``env`` or ``_env``.
        own_rows: names of the library's classes that do so.
        wrapper: the class that was asked to wrap it, for the error.
        hint: how the library makes such an environment, for the error.

    Raises:
        NotSupported: naming the wrapper that was found.
    """
    layer = env
    while layer is not None:
        if type(layer).__name__ in own_rows:
            raise NotSupported(
                f"{wrapper} makes the rows of a batch and resets them itself, and this environment has a "
                f"{type(layer).__name__}. Wrap the environment inside it, and pass batch_size=n{hint}."
            )
        held = vars(layer)
        layer = held.get("env", held.get("_env"))
