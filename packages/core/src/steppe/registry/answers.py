"""What the hooks of a plugin return, held against what they should: errors say what was found and what to write."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from ..errors import PluginError
from . import messages
from .records import LibraryInfo

__all__ = ["check_env", "checked_library", "checked_names"]


def check_env(env: Any, subject: str, *, name: str, function: str) -> None:
    """Refuse what a plugin made if it is no environment of steppe.

    Whoever makes one has loaded ``steppe.envs``, so that nothing is imported for this.

    Args:
        env: what was made.
        subject: how errors call who made it.
        name: what was asked for.
        function: what made it.
    """
    envs = sys.modules.get("steppe.envs")
    if envs is None or not isinstance(env, envs.EnvBase):
        kind = type(env)
        found = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        raise PluginError(messages.made_no_environment(subject, name=name, found=found, function=function))


def checked_names(found: Any, subject: str, *, namespace: str) -> Iterable[str]:
    """The names that ``steppe_env_names`` returned.

    Raises:
        PluginError: they are no list of strings, or have the namespace in front.
    """
    if found is None:
        return ()
    if isinstance(found, str) or not isinstance(found, Iterable):
        raise PluginError(messages.names_not_listed(subject, found=found))
    names = list(found)
    for name in names:
        if not isinstance(name, str):
            raise PluginError(messages.name_not_a_string(subject, found=name))
        if name.startswith(f"{namespace}:"):
            raise PluginError(messages.name_with_namespace(subject, namespace=namespace, found=name))
    return names


def checked_library(found: Any, subject: str) -> LibraryInfo | None:
    """What ``steppe_library`` returned.

    Raises:
        PluginError: it is no LibraryInfo.
    """
    if found is not None and not isinstance(found, LibraryInfo):
        raise PluginError(messages.no_library_info(subject, found=found))
    return found
