"""Plugin hooks of the namespace ``meltingpot:``.

Importing this module imports neither Melting Pot nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``MeltingpotEnv``."""
    from .env import MeltingpotEnv

    return MeltingpotEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of Melting Pot."""
    from .names import env_names

    return env_names()
