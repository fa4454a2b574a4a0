"""Plugin hooks of the namespace ``pettingzoo:``.

Importing this module imports neither PettingZoo nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import hookimpl


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make a ``PettingZooEnv``: ``butterfly/pistonball_v6``, ``classic/chess_v6``, ..."""
    from .env import PettingZooEnv

    return PettingZooEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the environments of PettingZoo's families and of MPE2."""
    from .names import available_names

    return available_names()
