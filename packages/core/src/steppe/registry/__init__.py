"""Who provides which environment and which transform. Loads neither torch nor, until its name is used, any plugin."""

from __future__ import annotations

from .api import (
    env_factory,
    env_not_found,
    find_library,
    find_transform,
    get_available_libraries,
    list_envs,
    list_namespaces,
    list_plugins,
    list_transforms,
    make_env,
    refresh,
    register_env,
)
from .factory import EnvFactory
from .hooks import hookimpl
from .ids import EnvId
from .manager import Registry, current, use
from .records import Alternative, LibraryInfo, PluginRecord
from .workers import apply_worker_state, worker_state

__all__ = [
    "Alternative",
    "EnvFactory",
    "EnvId",
    "LibraryInfo",
    "PluginRecord",
    "Registry",
    "apply_worker_state",
    "current",
    "env_factory",
    "env_not_found",
    "find_library",
    "find_transform",
    "get_available_libraries",
    "hookimpl",
    "list_envs",
    "list_namespaces",
    "list_plugins",
    "list_transforms",
    "make_env",
    "refresh",
    "register_env",
    "use",
    "worker_state",
]
