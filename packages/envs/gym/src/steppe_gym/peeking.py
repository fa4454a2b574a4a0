"""What an environment object says of itself, whatever is wrapped around it."""

from __future__ import annotations

from typing import Any

__all__ = ["find_attribute", "library_of"]


def find_attribute(env: Any, name: str, default: Any) -> Any:
    """Look an attribute up on an environment, then on each environment that its wrappers wrap.

    The wrappers of gymnasium 1.0 and later hand nothing through.
    """
    seen = 0
    while env is not None and seen < 64:
        try:
            return getattr(env, name)
        except AttributeError:
            inner = getattr(env, "__dict__", {}).get("env")
            env, seen = inner, seen + 1
    return default


def library_of(env: Any) -> str | None:
    """``"gymnasium"`` or ``"gym"``: whose spaces an environment has; None where they are of neither."""
    for value in (env.action_space, env.observation_space, env):
        for cls in type(value).__mro__:
            root = cls.__module__.partition(".")[0]
            if root in ("gym", "gymnasium"):
                return root
    return None
