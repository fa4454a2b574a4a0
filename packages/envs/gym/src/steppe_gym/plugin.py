"""The plugin of the namespace ``gym:``. Neither the libraries nor torch are imported before a hook needs them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``GymEnv`` of the library that ``set_gym_backend`` chose; gymnasium where both are installed."""
    from .env import GymEnv

    return GymEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """The ids of the library that answers now, and of the installed packages that extend it."""
    from .names import available_names

    return available_names()


@hookimpl
def steppe_library() -> LibraryInfo:
    """The library that answers now."""
    from steppe.versions import gym_backend, library_version

    module = gym_backend()
    return LibraryInfo(module.__name__, str(library_version(module.__name__)), module.__file__ or "")


@hookimpl
def steppe_register(id: str, make: Any, options: dict[str, Any]) -> bool:
    """Register an environment with the library that answers now; ``options`` are those of ``register_gym``."""
    from .registering import register_gym

    register_gym(id, make, **options)
    return True
