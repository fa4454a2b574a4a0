"""Validation of the values that a plugin's hooks return; the errors say what was found and what to write."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from ..errors import PluginError
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
        kind_name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        article = "an" if kind_name[:1].lower() in "aeiou" else "a"
        library = kind_name.partition(".")[0]
        wrapper = ", such as steppe_gym.GymWrapper(env)," if library in ("gym", "gymnasium") else ""
        raise PluginError(
            f"{label} made {article} {kind_name} for {name!r}, which is no environment of steppe. "
            f"Return an EnvBase{wrapper} from {function}."
        )


def checked_names(value: object, label: str, *, namespace: str) -> Iterable[str]:
    """Return the result of ``steppe_env_names``.

    Raises:
        PluginError: it is not a list of strings, or a name starts with the namespace.
    """
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Iterable):
        write = f"return [{value!r}]" if isinstance(value, str) else "return ['...']"
        raise PluginError(f"{label}: steppe_env_names must return a list of names, found {value!r}. Write: {write}")
    names = list(value)
    for name in names:
        if not isinstance(name, str):
            raise PluginError(
                f"{label}: steppe_env_names must return a list of names, found {name!r} among them. "
                "Write: return ['...']"
            )
        if name.startswith(f"{namespace}:"):
            raise PluginError(
                f"{label}: steppe_env_names gives names without their namespace, found {name!r}. "
                f"Write: {name.removeprefix(f'{namespace}:')!r}"
            )
    return names


def checked_library(value: object, label: str) -> LibraryInfo | None:
    """Return the result of ``steppe_library``.

    Raises:
        PluginError: it is not a LibraryInfo.
    """
    if value is not None and not isinstance(value, LibraryInfo):
        parts = list(value) if isinstance(value, (tuple, list)) else [value]
        arguments = ", ".join(map(repr, parts)) if len(parts) in (2, 3) else "'...', '...'"
        raise PluginError(
            f"{label}: steppe_library must return a LibraryInfo, found {value!r}. "
            f"Write: return LibraryInfo({arguments}), from steppe import LibraryInfo"
        )
    return value
