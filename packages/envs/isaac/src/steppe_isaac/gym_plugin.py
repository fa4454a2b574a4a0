"""Plugin hooks of the namespace ``isaacgym:``.

Importing this module imports neither Isaac Gym nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl

from .libraries import isaac_gym


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an ``IsaacGymEnv``."""
    from .isaac_gym import IsaacGymEnv

    return IsaacGymEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the tasks of IsaacGymEnvs."""
    from .isaac_gym import gym_tasks

    return gym_tasks()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed Isaac Gym."""
    return isaac_gym()
