"""Plugin hooks of the namespace ``openml:``.

Importing this module imports neither scikit-learn nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``OpenMLEnv``."""
    from .env import OpenMLEnv

    return OpenMLEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of scikit-learn."""
    from .names import env_names

    return env_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed scikit-learn."""
    return installed_library("scikit-learn", "sklearn")
