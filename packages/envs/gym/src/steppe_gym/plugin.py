"""Plugin hooks of the namespace ``gym:``.

Importing this module imports neither gym, gymnasium nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``GymEnv`` with the current backend.

    gymnasium is the default if both libraries are installed. The id names the environment, so an ``env_name`` is an
    argument of the library.
    """
    from .env import GymEnv

    if "env_name" in kwargs:
        own = {key: value for key, value in kwargs.items() if key != "env_name"}
        kwargs = {**own, "library_kwargs": {"env_name": kwargs["env_name"], **own.get("library_kwargs", {})}}
    return GymEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the ids of the current backend.

    The ids of installed packages that extend the backend are included.
    """
    from .names import available_names

    return available_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the current backend."""
    from steppe.versions import gym_backend, library_version

    module = gym_backend()
    return LibraryInfo(module.__name__, str(library_version(module.__name__)), module.__file__ or "")


@hookimpl
def steppe_register(id: str, make: Any, options: dict[str, Any]) -> bool:
    """Register an environment with the current backend.

    ``options`` are arguments of ``register_gym``.
    """
    from .gym_export import register_gym

    register_gym(id, make, **options)
    return True
