"""Find the libraries, which no package index has, and import them in the order that they need.

This module does not import torch.
"""

from __future__ import annotations

from typing import Any

from steppe.errors import LibraryMissing, LibraryVersionError, NotSupported
from steppe.registry import LibraryInfo, installed_library

__all__ = ["import_isaacgymenvs", "isaac_gym", "isaac_lab", "lab_tasks", "start_app"]

_GYM = "Download Isaac Gym Preview 4 from NVIDIA (developer.nvidia.com/isaac-gym), then: pip install -e isaacgym/python"
_TASKS = "git clone https://github.com/isaac-sim/IsaacGymEnvs, then: pip install -e IsaacGymEnvs"
_LAB = (
    "With Isaac Sim, from NVIDIA's index: pip install 'isaaclab[isaacsim]' --extra-index-url https://pypi.nvidia.com; "
    "or from source, as isaac-sim.github.io/IsaacLab says"
)

#: The order in which Isaac Gym must be imported, for error texts.
_ORDER = (
    "Isaac Gym must be imported before torch. Write `import isaacgym` in the first line of your program. "
    "Worker processes have it too with ParallelEnv(..., mp_start_method='fork'); those of the fork server do not, "
    "because they have torch from the start."
)


def isaac_gym() -> LibraryInfo:
    """Describe the installed Isaac Gym.

    Raises:
        LibraryMissing: it, or its tasks, are not installed.
        LibraryVersionError: it is older than Preview 4.
    """
    _checked("isaacgymenvs", "isaacgymenvs", "1.4", _TASKS)
    return _checked("isaacgym", "isaacgym", "1.0rc4", _GYM)


def isaac_lab() -> LibraryInfo:
    """Describe the installed Isaac Lab.

    Raises:
        LibraryMissing: it is not installed.
        LibraryVersionError: it is older than 0.30, the extension version of Isaac Lab 2.0.
    """
    return _checked("isaaclab", "isaaclab", "0.30", _LAB)


def _checked(dist: str, module: str, at_least: str, install: str) -> LibraryInfo:
    try:
        info = installed_library(dist, module)
    except ModuleNotFoundError:
        raise LibraryMissing(f"steppe-isaac needs {dist}>={at_least}, which is not installed. {install}.") from None
    from packaging.version import Version

    if Version(info.version) < Version(at_least):
        raise LibraryVersionError(
            f"steppe-isaac supports {dist}>={at_least}, but {dist} {info.version} is installed in {info.module_file}. "
            f"{install}."
        )
    return info


def import_isaacgymenvs() -> Any:
    """Import Isaac Gym and its tasks.

    Raises:
        LibraryMissing: one of them is not installed.
        NotSupported: torch was imported first.
    """
    isaac_gym()
    try:
        import isaacgym  # noqa: F401
    except ImportError as error:
        if "imported before isaacgym" not in str(error):
            raise
        raise NotSupported(_ORDER) from error
    import isaacgymenvs

    return isaacgymenvs


def start_app(*, headless: bool = True, enable_cameras: bool = False, **settings: Any) -> Any:
    """Start Isaac Sim, unless it runs in this process.

    Isaac Lab can be imported only afterwards. Isaac Sim starts once in a process, so later calls return the same
    object, whatever their arguments.

    Args:
        headless: without a window.
        enable_cameras: images can be rendered.
        **settings: further arguments of ``isaaclab.app.AppLauncher``.
    """
    if "app" not in _started:
        isaac_lab()
        from isaaclab.app import AppLauncher

        _started["app"] = AppLauncher(headless=headless, enable_cameras=enable_cameras, **settings).app
    return _started["app"]


_started: dict[str, Any] = {}


def lab_tasks() -> list[str]:
    """List the tasks of Isaac Lab, which starts Isaac Sim without a window if it does not run yet."""
    start_app()
    import gymnasium
    import isaaclab_tasks  # noqa: F401 (registers the tasks)

    return sorted(name for name in gymnasium.registry if name.startswith("Isaac-"))
