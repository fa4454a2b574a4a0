"""Making an environment of PettingZoo by its name, with errors that say what to do."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from steppe.errors import LibraryMissing, NotSupported
from steppe.registry import env_not_found

from .names import available_names, module_of

__all__ = ["make"]


def make(task: str, parallel: bool | None, kwargs: dict[str, Any]) -> Any:
    """Make an environment of the library.

    Args:
        task: ``butterfly/pistonball_v6``, or ``pistonball_v6`` alone.
        parallel: whether all agents act at once, or one after the other; None: at once where the task can.
        kwargs: for the library.

    Raises:
        EnvNotFound: there is none of this name.
        LibraryMissing: the environment needs a package that is not installed.
        NotSupported: agents of this task act one after the other only.
    """
    name = module_of(task)
    if name is None:
        raise env_not_found("pettingzoo", task, names=available_names())
    family = name.split(".")[-2] if name.startswith("pettingzoo.") else "mpe2"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        # The library wraps some of these errors in texts of its own.
        extra = f"steppe-pettingzoo[{family}]" if family == "atari" else "steppe[pettingzoo]"
        raise LibraryMissing(
            f"The environment {task!r} needs a package that is not installed ({error}): pip install '{extra}'"
        ) from error
    has_parallel = hasattr(module, "parallel_env")
    if parallel and not has_parallel:
        raise NotSupported(f"The agents of {task!r} act one after the other: leave parallel=True out.")
    if family == "atari":
        _use_installed_roms(kwargs)
    chosen = has_parallel if parallel is None else parallel
    return module.parallel_env(**kwargs) if chosen else module.env(**kwargs)


def _use_installed_roms(kwargs: dict[str, Any]) -> None:
    """Take the games' ROMs from ale-py, which brings them, unless the user says where others are."""
    spec = find_spec("ale_py")
    if "auto_rom_install_path" not in kwargs and spec is not None and spec.origin is not None:
        kwargs["auto_rom_install_path"] = str(Path(spec.origin).parent / "roms")
