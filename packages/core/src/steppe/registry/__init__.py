"""Plugins: finds, imports and calls the packages that provide environments, transforms, loggers and commands.

Imports no torch. A plugin is imported at the first use of one of its names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from .ids import EnvId
from .manager import Registry, current, use
from .records import Alternative, LibraryInfo, PluginRecord

if TYPE_CHECKING:
    from .factory import EnvFactory
    from .hooks import hookimpl
    from .requirements import requirement_text
    from .workers import apply_worker_state, worker_state

# Imported at first use: listing plugins needs neither these nor pluggy, and should be quick.
_LATE = {
    "EnvFactory": "factory",
    "apply_worker_state": "workers",
    "hookimpl": "hooks",
    "requirement_text": "requirements",
    "worker_state": "workers",
}

__all__ = [
    "Alternative",
    "AvailableEnvs",
    "EnvFactory",
    "EnvId",
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


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
    return value
