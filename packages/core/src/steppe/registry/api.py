"""The functions of ``steppe.registry``: they use the registry of this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import EnvNotFound
from .factory import EnvFactory
from .manager import current
from .records import EnvMaker, Kind, PluginRecord


def make_env(id: str, /, **kwargs: object) -> Any:
    """Make an environment by its id.

    The plugin that owns the namespace is found in package metadata, checked, and imported at the first use of its name.

    Args:
        id: ``"namespace:name"``, such as ``"gym:Pendulum-v1"``. Only the first colon splits.
        kwargs: passed to the plugin, which documents them.

    Returns:
        The environment, an `EnvBase`.

    Raises:
        EnvIdError: `id` is not ``"namespace:name"``.
        EnvNotFound: the plugin has no such environment.
        PluginError: the plugin is missing, hidden, in conflict or broken, or does not support the installed library.
        Exception: exceptions of the environment, unchanged; on Python 3.11 and later with a note that names the id and
            the plugin.
    """
    return current().make(id, kwargs)


def env_factory(id: str, /, **kwargs: object) -> EnvFactory:
    """Return a callable that makes the environment of an id, and can be pickled for another process.

    Package metadata is checked here; the plugin is imported by the process that calls the factory. An id that was
    registered with `register_env` is resolved to its function here, which is pickled by value.

    Args:
        id: the environment's id.
        kwargs: passed to `make_env`.

    Raises:
        EnvIdError: `id` is not ``"namespace:name"``.
        EnvNotFound: a namespace that was registered with `register_env` has no such name.
        PluginError: there is no such plugin, or it cannot be used.
    """
    return EnvFactory(id, kwargs, current().maker(id))


def register_env(name: str, make: EnvMaker, *, names: Iterable[str] | None = None) -> None:
    """Register environments of a script or notebook, without a package.

    Registering the same name again replaces it. Workers that are started afterwards have it too.

    Args:
        name: a namespace, ``"toy"``, or a whole id, ``"toy:Line"``.
        make: makes the environment; called as ``make(name, **kwargs)`` for a namespace, ``make(**kwargs)`` for an id.
        names: the names in the namespace; None accepts any name.

    Raises:
        EnvIdError: `name` is neither a namespace nor an id.
        PluginConflict: an installed package provides the namespace.
    """
    current().register(name, make, names=names)


def list_plugins() -> list[PluginRecord]:
    """Return every installed plugin, with its state and its problem, if any. Imports none of them."""
    return current().records()


def list_envs(namespace: str) -> list[str]:
    """Return the names of a namespace's environments, sorted; imports its plugin. The list may be incomplete.

    Raises:
        PluginError: there is no such plugin, or it cannot be used.
    """
    return current().env_names(namespace)


def list_classes(kind: Kind) -> list[str]:
    """Return the names of the classes of a kind that installed packages provide, sorted. Imports none of them.

    Args:
        kind: ``"env class"``, ``"transform"``, ``"collector"`` (agents and actors too), ``"function"`` or ``"logger"``.
    """
    return current().providers.names(kind)


def find_class(kind: Kind, name: str, *, core: Iterable[str] = (), module: str | None = None) -> Any:
    """Load a class or function of an installed package, for ``steppe.transforms`` and its like."""
    return current().find_class(kind, name, core=core, module=module)


def get_available_libraries() -> dict[str, bool]:
    """Return every namespace that is installed or known, and whether it can be used now. Imports no plugin."""
    return current().availability()


def env_not_found(namespace: str, name: str, *, names: Iterable[str] | None = None) -> EnvNotFound:
    """Return the error that a plugin raises for an unknown environment: ``raise env_not_found("gym", name)``.

    The text names the plugin, its library and the closest name, and says how to list the names.

    Args:
        namespace: the plugin's namespace.
        name: the unknown name.
        names: the names that exist; None calls the plugin's ``steppe_env_names``.
    """
    return current().env_not_found(namespace, name, names=names)


def refresh() -> None:
    """Search again for installed packages; a plugin that failed to import is imported again at its next use."""
    current().refresh()
