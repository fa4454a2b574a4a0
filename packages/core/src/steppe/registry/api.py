"""The functions of the registry, on the one registry of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..errors import EnvNotFound
from .manager import current
from .records import LibraryInfo, PluginRecord

if TYPE_CHECKING:
    from .factory import EnvFactory


def make_env(id: str, /, **kwargs: Any) -> Any:
    """Make an environment by its id.

    The plugin that owns the namespace is found in package metadata, checked, and imported at the first use of its name.

    Args:
        id: ``"namespace:name"``, such as ``"gym:Pendulum-v1"``. Only the first colon splits.
        kwargs: given to the plugin, which documents them.

    Returns:
        The environment, an `EnvBase`.

    Raises:
        EnvIdError: `id` is not ``"namespace:name"``.
        EnvNotFound: the plugin has no such environment.
        PluginError: the plugin is missing, hidden, in conflict, broken, or its library does not fit.
        Exception: whatever the environment itself raises, unchanged; on Python 3.11 and later with a note that names
            the id and the plugin.
    """
    return current().make(id, kwargs)


def env_factory(id: str, /, **kwargs: Any) -> EnvFactory:
    """An id and its arguments as a callable without arguments that pickle takes to another process.

    Whatever package metadata can tell is checked here; the plugin is imported where the factory is called. An id
    registered in process is resolved to its function here, which travels by value.

    Args:
        id: the environment's id.
        kwargs: given to `make_env`.

    Raises:
        EnvIdError: `id` is not ``"namespace:name"``.
        EnvNotFound: a namespace registered in process has no such name.
        PluginError: no plugin, or one that cannot be used.
    """
    from .factory import EnvFactory

    return EnvFactory(id, kwargs, current().maker(id))


def register_env(name: str, make: Callable[..., Any], *, names: Iterable[str] | None = None) -> None:
    """Register environments of a script or notebook, without a package.

    Registering the same name again replaces it. Workers started afterwards know it too.

    Args:
        name: a namespace, ``"toy"``, or a whole id, ``"toy:Line"``.
        make: makes the environment: of a namespace ``make(name, **kwargs)``, of a whole id ``make(**kwargs)``.
        names: what the namespace has; None accepts any name.

    Raises:
        EnvIdError: `name` is neither a namespace nor an id.
        PluginConflict: an installed package provides the namespace.
    """
    current().register(name, make, names=names)


def register_with_library(namespace: str, id: str, make: str | Callable[..., Any], /, **options: Any) -> None:
    """Let a wrapped library make an environment of steppe's, by an id of its own.

    Args:
        namespace: of the plugin that wraps the library, such as ``"gym"``.
        id: what the library will know the environment by.
        make: an id of steppe's, or a callable that makes the environment.
        options: given to the plugin, which documents them.

    Raises:
        PluginError: the plugin is missing, or cannot do this.
    """
    current().register_with_library(namespace, id, make, options)


def list_plugins() -> list[PluginRecord]:
    """Every plugin that is installed, with its state and what is wrong with it. Imports none of them."""
    return current().records()


def list_namespaces() -> list[str]:
    """The namespaces that ids can start with, sorted. Imports no plugin."""
    return current().namespaces()


def list_envs(namespace: str) -> list[str]:
    """The names of a namespace's environments, sorted; loads its plugin. May be partial, and empty.

    Raises:
        PluginError: no plugin, or one that cannot be used.
    """
    return current().env_names(namespace)


def list_transforms() -> list[str]:
    """The names of the transforms that installed packages provide, sorted. Imports none of them."""
    return current().providers.names("transform")


def find_transform(name: str, *, core: Iterable[str] = ()) -> Any:
    """The class of a transform that an installed package provides; what ``steppe.transforms`` looks up with.

    Args:
        name: name of the class.
        core: the names of the core's own transforms, for suggestions.

    Raises:
        TransformNotFound: a first-party package has it and is not installed.
        AttributeError: nobody is known to have it, or it starts with an underscore.
        PluginConflict: two packages provide it.
        PluginBlocked: its package is hidden.
        PluginError: its package cannot be used.
    """
    return current().find_class("transform", name, core=core)


def list_collectors() -> list[str]:
    """The names of the collectors, agents and actors that installed packages provide, sorted. Imports none of them."""
    return current().providers.names("collector")


def find_collector(name: str, *, core: Iterable[str] = ()) -> Any:
    """Load the class of a collector, agent or actor that an installed package provides; ``steppe.collectors`` uses it.

    Args:
        name: name of the class.
        core: the names of the core's own classes, for suggestions.

    Raises:
        CollectorNotFound: a first-party package has it and is not installed.
        AttributeError: nobody is known to have it, or it starts with an underscore.
        PluginConflict: two packages provide it.
        PluginBlocked: its package is hidden.
        PluginError: its package cannot be used.
    """
    return current().find_class("collector", name, core=core)


def list_loggers() -> list[str]:
    """The names of the loggers that installed packages provide, sorted. Imports none of them."""
    return current().providers.names("logger")


def find_logger(name: str) -> Any:
    """The class of a logger that an installed package provides; what ``steppe.loggers`` looks up with.

    Args:
        name: name of the class, or what stands before ``Logger`` in it, in any case: ``"csv"`` for ``CSVLogger``.

    Raises:
        LoggerNotFound: a first-party package has it and is not installed.
        AttributeError: nobody is known to have it, or it starts with an underscore.
        PluginConflict: two packages provide it.
        PluginBlocked: its package is hidden.
        PluginError: its package cannot be used.
    """
    return current().find_class("logger", name)


def find_library(namespace: str) -> LibraryInfo | None:
    """The library behind a namespace as it is now, None where the plugin does not say; loads the plugin.

    Raises:
        PluginError: no plugin, or one that cannot be used.
    """
    return current().library(namespace)


def get_available_libraries() -> dict[str, bool]:
    """Every namespace that is installed or known, and whether it can be used as things stand. Imports no plugin."""
    return current().availability()


def env_not_found(namespace: str, name: str, *, names: Iterable[str] | None = None) -> EnvNotFound:
    """The error for a plugin to raise when it has no such environment: ``raise env_not_found("gym", name)``.

    The text names the plugin, its library, the closest name there is, and how to list them.

    Args:
        namespace: the plugin's namespace.
        name: what was asked for.
        names: the names that exist; None asks the plugin's ``steppe_env_names``.
    """
    return current().env_not_found(namespace, name, names=names)


def refresh() -> None:
    """Look again for installed packages; a plugin that failed to import is tried again at its next use."""
    current().refresh()
