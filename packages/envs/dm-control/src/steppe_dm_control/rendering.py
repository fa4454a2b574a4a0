"""Rendering without a display: through EGL, unless the user has chosen something else."""

from __future__ import annotations

import importlib
import os
import sys

__all__ = ["prepare_rendering"]

_VARIABLE = "MUJOCO_GL"
_MODULE = "dm_control._render"


def prepare_rendering() -> None:
    """Let dm_control render without a display where there is none and the user has not said how: through EGL.

    The library reads ``MUJOCO_GL`` once, when it is imported. Where that was before somebody asked for a frame (an
    environment without pixels came first, or the user's own import), it has chosen GLFW, which needs a display: the
    module that chooses is loaded again. GLFW cannot have made a context until then, so nothing is lost.
    """
    if sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ) or os.environ.get(_VARIABLE):
        return
    os.environ[_VARIABLE] = "egl"
    module = sys.modules.get(_MODULE)
    if module is None or getattr(module, "BACKEND", None) not in (None, "glfw"):
        return
    try:
        importlib.reload(module)
    except ImportError:  # there is no EGL here: what renders a frame says so
        del os.environ[_VARIABLE]
        importlib.reload(module)
