"""Start a Unity game."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from steppe.errors import EnvNotFound
from steppe.registry import env_not_found

__all__ = ["start"]


def start(file_name: str | None, registered_name: str | None, *, seed: int, settings: Mapping[str, Any]) -> Any:
    """Start a game by its file, or by its name in the registry of ML-Agents.

    Raises:
        EnvNotFound: the registry has no such game, or cannot be read.
    """
    from mlagents_envs.environment import UnityEnvironment

    if registered_name is None:
        return UnityEnvironment(file_name, seed=seed, **settings)
    from mlagents_envs.registry import default_registry

    try:
        names = sorted(default_registry)
    except Exception as error:  # the registry raises errors of several libraries for a missing network
        raise EnvNotFound(
            f"There is no file {registered_name!r}, and the registry of ML-Agents, which may have a game of this name, "
            f"cannot be read ({type(error).__name__}: {error}). It needs a network. To start a game of your own, pass "
            "the path of its file."
        ) from error
    if registered_name not in names:
        raise env_not_found("unity", registered_name, names=names)
    return default_registry[registered_name].make(seed=seed, **settings)


def is_file(name: str) -> bool:
    """Whether a name is the path of a game; Unity leaves out the ending of the file."""
    return any(os.path.exists(name + ending) for ending in ("", ".x86_64", ".x86", ".app", ".exe"))
