"""Plugin hooks of the namespace ``openspiel:``.

Importing this module imports neither OpenSpiel nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``OpenSpielEnv``."""
    from .env import OpenSpielEnv

    return OpenSpielEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of OpenSpiel."""
    from .names import env_names

    return env_names()
