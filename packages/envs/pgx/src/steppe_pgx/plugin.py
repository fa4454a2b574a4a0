"""Plugin hooks of the namespace ``pgx:``.

Importing this module imports neither Pgx nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl
from steppe_jax.hooks import fork_safe, steppe_worker_setup

__all__ = ["fork_safe", "steppe_env_names", "steppe_make_env", "steppe_worker_setup"]


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``PgxEnv``."""
    from .env import PgxEnv

    return PgxEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of Pgx."""
    from .names import env_names

    return env_names()
