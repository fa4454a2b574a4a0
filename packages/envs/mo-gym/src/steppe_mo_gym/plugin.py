"""Plugin hooks of the namespace ``mo-gym:``.

Importing this module imports neither MO-Gymnasium nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``MOGymEnv``."""
    from .env import MOGymEnv

    return MOGymEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the ids that MO-Gymnasium has registered."""
    from .names import available_names

    return available_names()
