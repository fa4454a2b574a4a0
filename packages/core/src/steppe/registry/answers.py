"""Validation of the values that a plugin's hooks return; the errors say what was found and what to write."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ..errors import PluginError
from . import messages
from .records import LibraryInfo

__all__ = ["check_env", "checked_library", "checked_names"]


def check_env(env: object, label: str, *, name: str, function: str) -> None:
    """Raise PluginError if a plugin has made something that is no `EnvBase`.

    ``steppe.envs`` is not imported for this: without it, no `EnvBase` can have been made.

    Args:
        env: the value that was made.
        label: name of the plugin, for the error.
        name: name of the environment.
        function: name of the function that made it.
    """
    envs = sys.modules.get("steppe.envs")
    if envs is None or not isinstance(env, envs.EnvBase):
        kind = type(env)
        found = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise PluginError(messages.made_no_environment(label, name=name, found=found, function=function))


def checked_names(value: object, label: str, *, namespace: str) -> Iterable[str]:
    """Return the result of ``steppe_env_names``.

    Raises:
        PluginError: it is not a list of strings, or a name starts with the namespace.
    """
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise PluginError(messages.names_not_listed(label, found=value))
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise PluginError(messages.name_not_a_string(label, found=name))
        if name.startswith(f"{namespace}:"):
            raise PluginError(messages.name_with_namespace(label, namespace=namespace, found=name))
    return names


def checked_library(value: object, label: str) -> LibraryInfo | None:
    """Return the result of ``steppe_library``.

    Raises:
        PluginError: it is not a LibraryInfo.
    """
    if value is not None and not isinstance(value, LibraryInfo):
        raise PluginError(messages.no_library_info(label, found=value))
    return value
