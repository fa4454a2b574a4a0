"""What wrappers of libraries share: the library's environment in them, and which arguments are for whom."""

from __future__ import annotations

import inspect
from typing import Any

from steppe.envs.base import EnvBase

__all__ = ["LibraryWrapper", "base_arguments"]

_BASE_ARGUMENTS = tuple(inspect.signature(EnvBase).parameters)


class LibraryWrapper(EnvBase):
    """Base of environments that have an environment of a library in them, as ``_env``.

    Attributes that the class lacks are looked up on ``_env``, and ``close`` closes it.

    Attributes:
        git_url: where the library is developed.
        libname: its name.
        available_envs: the names of its environments; a class says them with
            :class:`~steppe.registry.AvailableEnvs`.
    """

    git_url: str = ""
    libname: str = ""
    available_envs: Any = {}

    def wrap_library(self, env: Any) -> None:
        """Keep the library's environment as ``_env``; one that is a module itself is no part of this one."""
        object.__setattr__(self, "_env", env)

    def find_elsewhere(self, name: str) -> Any:
        env = vars(self).get("_env")
        return super().find_elsewhere(name) if env is None or name.startswith("__") else getattr(env, name)

    def close(self, *, raise_if_closed: bool = False) -> None:
        """Close the library's environment, if it has such a method."""
        was_closed = self.is_closed
        super().close(raise_if_closed=raise_if_closed)
        close = getattr(vars(self).get("_env"), "close", None)
        if not was_closed and close is not None:
            close()


def base_arguments(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Take out of ``kwargs`` what :class:`~steppe.envs.EnvBase` takes, and return it.

    For classes that make an environment by its name, whose other keyword arguments are for the library.

    Args:
        kwargs: loses these arguments.
    """
    return {name: kwargs.pop(name) for name in _BASE_ARGUMENTS if name in kwargs}
