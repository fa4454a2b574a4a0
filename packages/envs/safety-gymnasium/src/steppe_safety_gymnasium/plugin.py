"""Plugin hooks of the namespace ``safety:``.

Importing this module imports neither Safety-Gymnasium nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``SafetyGymnasiumEnv``."""
    from .env import SafetyGymnasiumEnv

    return SafetyGymnasiumEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of Safety-Gymnasium."""
    from .names import env_names

    return env_names()
