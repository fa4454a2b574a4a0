"""The plugin of the namespace ``envpool:``. Neither EnvPool nor torch is imported before a hook needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``MultiThreadedEnv``; ``num_workers`` says how many environments, 1 by default."""
    from .env import MultiThreadedEnv

    return MultiThreadedEnv(kwargs.pop("num_workers", 1), name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """The ids that EnvPool has."""
    import envpool

    return sorted(envpool.list_all_envs())


@hookimpl
def steppe_library() -> LibraryInfo:
    """EnvPool's version and file."""
    return installed_library("envpool", "envpool")
