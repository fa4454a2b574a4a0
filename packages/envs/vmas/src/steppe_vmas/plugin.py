"""The plugin of the namespace ``vmas:``. Neither the library nor torch is imported before a hook needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``VmasEnv``; ``num_envs`` says how many environments, 1 by default."""
    from .env import VmasEnv

    return VmasEnv(name, **{"num_envs": 1, **kwargs})


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """The scenarios that come with VMAS."""
    from .scenarios import scenario_names

    return scenario_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """VMAS as it is installed."""
    return installed_library("vmas", "vmas")
