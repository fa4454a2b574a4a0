"""Look up attributes and the library of an environment through its wrappers."""

from __future__ import annotations

from typing import Any

__all__ = ["find_attribute", "library_of"]


def find_attribute(env: Any, name: str, default: object) -> Any:
    """Look up an attribute on an environment and inside its wrappers.

    The wrappers of gymnasium 1.0 and later do not forward attributes.
    """
    depth = 0
    while env is not None and depth < 64:
        try:
            return getattr(env, name)
        except AttributeError:
            inner = getattr(env, "__dict__", {}).get("env")
            env, depth = inner, depth + 1
    return default


def library_of(env: Any) -> str | None:
    """Return the library of an environment's spaces, ``"gymnasium"`` or ``"gym"``.

    Returns None if it is neither.
    """
    for value in (env.action_space, env.observation_space, env):
        for cls in type(value).__mro__:
            root = cls.__module__.partition(".")[0]
            if root in ("gym", "gymnasium"):
                return root
    return None
