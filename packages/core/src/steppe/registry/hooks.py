"""The hooks of an environment plugin, and the marker ``hookimpl`` of their implementations.

The module of a plugin must not import its library or torch at the top; the hooks import them. A hook is only called on
the plugin that owns the namespace. Hooks may get more arguments later; an implementation declares those that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pluggy

from .records import LibraryInfo

PROJECT = "steppe"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function of a plugin's module as the implementation of the hook of the same name."""


@hookspec(firstresult=True)
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an environment.

    Args:
        name: the part of the id after the first colon.
        kwargs: the keyword arguments of `make_env`.

    Returns:
        The environment, an `EnvBase`.

    Raises:
        EnvNotFound: the name is unknown; write ``raise env_not_found(namespace, name)``.
    """


@hookspec(firstresult=True)
def steppe_env_names() -> Iterable[str]:  # type: ignore[empty-body]
    """Return the names of the environments, without making any. May be incomplete; used for lists and suggestions."""


@hookspec(firstresult=True)
def steppe_library() -> LibraryInfo:  # type: ignore[empty-body]
    """Return the installed library. Default: the required package named as the namespace, or the only required one."""


@hookspec
def steppe_worker_setup(worker: int) -> None:
    """Prepare a worker process, once, before its first environment of this plugin.

    Args:
        worker: index of the process in its batch, for example to choose a render device.
    """


@hookspec(firstresult=True)
def steppe_register(id: str, make: Any, options: dict[str, Any]) -> bool:  # type: ignore[empty-body]
    """Register an environment of steppe with the wrapped library, so that the library can make it.

    Args:
        id: the id in the library.
        make: an id of steppe, or a callable that returns an `EnvBase`.
        options: further arguments for the library; the plugin documents them.

    Returns:
        True.
    """
