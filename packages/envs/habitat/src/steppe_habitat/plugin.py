"""Plugin hooks of the namespace ``habitat:``.

Importing this module imports neither Habitat nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``HabitatEnv``."""
    from .env import HabitatEnv

    return HabitatEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the tasks that Habitat registers with gym."""
    from .names import env_names

    return env_names()
