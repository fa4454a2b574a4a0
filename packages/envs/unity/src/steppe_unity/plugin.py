"""Plugin hooks of the namespace ``unity:``.

Importing this module imports neither ML-Agents nor torch. There is no hook that lists names, because ML-Agents reads
the list of its registry from the network.
"""

from __future__ import annotations

from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``UnityMLAgentsEnv``: of a file if there is one, otherwise of ML-Agents' registry."""
    from .env import UnityMLAgentsEnv
    from .starting import is_file

    if is_file(name):
        return UnityMLAgentsEnv(file_name=name, **kwargs)
    return UnityMLAgentsEnv(registered_name=name, **kwargs)
