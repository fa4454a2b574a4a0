"""Plugin hooks of the namespace ``safety:``.

Importing this module imports neither Safety-Gymnasium nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``SafetyGymnasiumEnv``."""
    from .env import SafetyGymnasiumEnv

    return SafetyGymnasiumEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of Safety-Gymnasium."""
    from .names import env_names

    return env_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed Safety-Gymnasium."""
    return installed_library("safety-gymnasium", "safety_gymnasium")
