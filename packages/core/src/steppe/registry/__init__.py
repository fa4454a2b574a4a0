"""Plugins: finds, imports and calls the packages that provide environments, transforms, loggers and commands.

Imports no torch. A plugin is imported at the first use of one of its names.
"""

from __future__ import annotations

from .api import (
    env_factory,
    env_not_found,
    find_class,
    get_available_libraries,
    list_classes,
    list_envs,
    list_plugins,
    make_env,
    refresh,
    register_env,
)
from .available import AvailableEnvs
from .discovery import installed_library
from .factory import EnvFactory
from .hooks import hookimpl
from .ids import EnvId
from .manager import Registry, current, use
from .records import Alternative, Kind, LibraryInfo, PluginRecord
from .requirements import requirement_text
from .workers import apply_worker_state, worker_state

__all__ = [
    "Alternative",
    "AvailableEnvs",
    "EnvFactory",
    "EnvId",
    "Kind",
    "LibraryInfo",
    "PluginRecord",
    "Registry",
    "apply_worker_state",
    "current",
    "env_factory",
    "env_not_found",
    "find_class",
    "get_available_libraries",
    "hookimpl",
    "installed_library",
    "list_classes",
    "list_envs",
    "list_plugins",
    "make_env",
    "refresh",
    "register_env",
    "requirement_text",
    "use",
    "worker_state",
]
