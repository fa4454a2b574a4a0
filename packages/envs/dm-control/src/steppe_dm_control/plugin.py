"""The plugin of the namespace ``dm:``. Neither the library nor torch is imported before a hook needs it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl, installed_library


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``DMControlEnv``: ``cheetah-run``, ``cheetah/run``, ``manipulation/reach_site_features``, ..."""
    from .env import DMControlEnv

    return DMControlEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """The tasks of the suite, of manipulation and of locomotion."""
    from .names import available_names

    return available_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """dm_control as it is installed."""
    return installed_library("dm-control", "dm_control")
