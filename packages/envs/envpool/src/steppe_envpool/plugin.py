"""Plugin hooks of the namespace ``envpool:``.

Importing this module imports neither EnvPool nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``MultiThreadedEnv`` of ``num_workers`` environments, 1 by default."""
    from .env import MultiThreadedEnv

    return MultiThreadedEnv(kwargs.pop("num_workers", 1), name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the ids of EnvPool."""
    import envpool

    return sorted(envpool.list_all_envs())
