"""Plugin hooks of the namespace ``vmas:``.

Importing this module imports neither VMAS nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``VmasEnv`` of ``num_envs`` environments, 1 by default."""
    from .env import VmasEnv

    return VmasEnv(name, **{"num_envs": 1, **kwargs})


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the scenarios that come with VMAS."""
    from .scenarios import scenario_names

    return scenario_names()
