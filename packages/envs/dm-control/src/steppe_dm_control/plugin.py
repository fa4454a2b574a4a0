"""Plugin hooks of the namespace ``dm:``.

Importing this module imports neither dm_control nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``DMControlEnv``: ``cheetah-run``, ``manipulation/reach_site_features``"""
    from .env import DMControlEnv

    return DMControlEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the tasks of the suite, of manipulation and of locomotion."""
    from .names import available_names

    return available_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed dm_control."""
    return installed_library("dm-control", "dm_control")
