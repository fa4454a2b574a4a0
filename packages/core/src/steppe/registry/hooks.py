"""The five hooks of an environment plugin, and the marker with which a plugin implements them.

The module of a plugin imports neither its library nor torch at its top: that happens inside the hooks. A hook is only
called on the plugin that owns the namespace. Hooks may gain arguments; an implementation names those that it wants.
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
        name: what stands after the first colon of the id.
        kwargs: the keyword arguments of `make_env`.

    Returns:
        The environment, an `EnvBase`.

    Raises:
        EnvNotFound: there is no such environment; ``raise env_not_found(namespace, name)`` writes the text.
    """


@hookspec(firstresult=True)
def steppe_env_names() -> Iterable[str]:  # type: ignore[empty-body]
    """Name the environments that exist, without building any. May be partial; used for lists and suggestions."""


@hookspec(firstresult=True)
def steppe_library() -> LibraryInfo:  # type: ignore[empty-body]
    """Name the wrapped library as it is now: its distribution, version and file."""


@hookspec
def steppe_worker_setup(worker: int) -> None:
    """Prepare a worker process, once, before its first environment of this plugin.

    Args:
        worker: index of the process among those of its batch: for choosing a render device, say.
    """


@hookspec(firstresult=True)
def steppe_register(id: str, make: Any, options: dict[str, Any]) -> bool:  # type: ignore[empty-body]
    """Register an environment of steppe's with the wrapped library, so that the library can make it.

    Args:
        id: what the library will know it by.
        make: what makes it: an id of steppe's, or a callable that returns an `EnvBase`.
        options: what else the library can be told; the plugin documents it.

    Returns:
        True.
    """
