"""Plugin hooks of the namespace ``robohive:``.

Importing this module imports neither RoboHive nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``RoboHiveEnv``."""
    from .env import RoboHiveEnv

    return RoboHiveEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of RoboHive."""
    from .names import env_names

    return env_names()
