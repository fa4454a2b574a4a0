"""Refuses environments of a library that are batched or reset themselves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from steppe.errors import NotSupported

__all__ = ["check_single"]


def check_single(env: object, own_rows: Collection[str], *, wrapper: str, hint: str = "") -> None:
    """Raise an error if a wrapper of the library batches or resets.

    ``JaxEnv`` does both itself.

    >>> from steppe_jax import check_single
    >>> class VmapWrapper:  # a wrapper of some library
    ...     pass
    >>> check_single(VmapWrapper(), ["VmapWrapper"], wrapper="MyWrapper")
    Traceback (most recent call last):
        ...
    steppe.errors.NotSupported: MyWrapper batches and resets environments itself, but this environment has a
    VmapWrapper. Wrap the environment inside it, and pass batch_size=n.

    Args:
        env: an environment of the library. Wrapped environments are its attribute ``env`` or ``_env``.
        own_rows: names of the library's wrapper classes that batch or reset.
        wrapper: name of the steppe class that wraps the environment, for the error text.
        hint: how to make an unbatched environment with the library, for the error text.

    Raises:
        NotSupported: the environment has such a wrapper, which the text names.
    """
    layer: Any = env
    while layer is not None:
        if type(layer).__name__ in own_rows:
            raise NotSupported(
                f"{wrapper} batches and resets environments itself, but this environment has a "
                f"{type(layer).__name__}. Wrap the environment inside it, and pass batch_size=n{hint}."
            )
        attributes = vars(layer)
        layer = attributes.get("env", attributes.get("_env"))
