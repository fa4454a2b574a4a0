"""Keep the LLVM of Triton apart from that of Mesa. Torch-free."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import sys

from steppe.imports import after_import

__all__ = ["keep_llvm_apart"]


@functools.cache  # several wrappers call it
def keep_llvm_apart() -> None:
    """Let tensordict be imported after MuJoCo, where that would crash the process.

    With ``MUJOCO_GL=egl``, MuJoCo loads Mesa, whose LLVM becomes visible to all libraries that are loaded later. Triton
    has an LLVM of its own. torch loads Triton, with a CUDA build, when tensordict is imported; Triton then calls
    functions of Mesa's LLVM, and the process ends with a segmentation fault.

    Wrappers of libraries that use MuJoCo call this in their ``__init__.py``, before they import tensordict. If MuJoCo
    has loaded EGL, or does so later, Triton is loaded at once, with its own functions. Nothing happens if Triton is not
    installed, or tensordict is imported already.

    >>> from steppe_gym_like import keep_llvm_apart
    >>> keep_llvm_apart()
    """
    after_import("mujoco.egl", _load_triton)


def _load_triton() -> None:
    if "triton" in sys.modules or "tensordict" in sys.modules or importlib.util.find_spec("triton") is None:
        return
    flags = sys.getdlopenflags()
    sys.setdlopenflags(flags | getattr(os, "RTLD_DEEPBIND", 0))
    try:
        with contextlib.suppress(ImportError):  # torch does without Triton then
            importlib.import_module("triton")
    finally:
        sys.setdlopenflags(flags)
