"""Plugin hooks of the namespace ``procgen:``.

Importing this module imports neither Procgen nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``ProcgenEnv``."""
    from .env import ProcgenEnv

    return ProcgenEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the games of Procgen."""
    from .names import env_names

    return env_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed Procgen, the mirror or the original."""
    try:
        return installed_library("procgen-mirror", "procgen")
    except ModuleNotFoundError:
        return installed_library("procgen", "procgen")
