"""Render through EGL if there is no display."""

from __future__ import annotations

import importlib
import os
import sys

__all__ = ["prepare_rendering"]

_VARIABLE = "MUJOCO_GL"
_MODULE = "dm_control._render"


def prepare_rendering() -> None:
    """Make dm_control render through EGL if there is no display.

    If there is a display, or the user has set ``MUJOCO_GL``, nothing is changed.

    The library reads ``MUJOCO_GL`` once, when it is imported. If it was imported before the first environment with
    pixels was made, it has chosen GLFW, which needs a display. Then the module that chooses is loaded again. Without a
    display, GLFW cannot have made a context before, so nothing is lost.
    """
    if sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ) or os.environ.get(_VARIABLE):
        return
    os.environ[_VARIABLE] = "egl"
    module = sys.modules.get(_MODULE)
    if module is None or getattr(module, "BACKEND", None) not in (None, "glfw"):
        return
    try:
        importlib.reload(module)
    except ImportError:  # EGL is not available; the first render raises the error
        del os.environ[_VARIABLE]
        importlib.reload(module)
