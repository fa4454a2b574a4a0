"""Plugin hooks of the namespace ``isaaclab:``.

Importing this module imports neither Isaac Lab nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steppe.registry import LibraryInfo, hookimpl

from .libraries import isaac_lab, lab_tasks


@hookimpl
def steppe_make_env(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an ``IsaacLabEnv``."""
    from .isaac_lab import IsaacLabEnv

    return IsaacLabEnv(name, **kwargs)


@hookimpl
def steppe_env_names() -> Iterable[str]:
    """List the tasks of Isaac Lab, which starts Isaac Sim."""
    return lab_tasks()


@hookimpl
def steppe_library() -> LibraryInfo:
    """Return name, version and path of the installed Isaac Lab."""
    return isaac_lab()
