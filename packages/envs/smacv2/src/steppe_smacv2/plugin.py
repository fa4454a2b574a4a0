"""Plugin hooks of the namespace ``smacv2:``.

Importing this module imports neither SMACv2 nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl

from .names import installed_smacv2


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an ``SMACv2Env``."""
    from .env import SMACv2Env

    return SMACv2Env(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the maps of SMACv2."""
    from .names import map_names

    return map_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed SMACv2."""
    return installed_smacv2()
