"""Make an environment of PettingZoo by its name."""

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
        parallel: whether all agents act at the same time, or one after the other. ``None``: at the same time, if the
            task supports it.
        kwargs: arguments for the library. The path of the Atari ROMs may be added.

    Raises:
        EnvNotFound: the library has no such environment.
        LibraryMissing: the environment needs a package that is not installed.
        NotSupported: ``parallel=True``, and the agents of this task can only act one after the other.
    """
    name = module_of(task)
    if name is None:
        raise env_not_found("pettingzoo", task, names=available_names())
    family = name.split(".")[-2] if name.startswith("pettingzoo.") else "mpe2"
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        # The cause is included, because PettingZoo replaces some of these errors by its own texts.
        extra = f"steppe-pettingzoo[{family}]" if family == "atari" else "steppe[pettingzoo]"
        raise LibraryMissing(
            f"The environment {task!r} needs a package that is not installed ({error}): pip install '{extra}'"
        ) from error
    has_parallel = hasattr(module, "parallel_env")
    if parallel and not has_parallel:
        raise NotSupported(f"The agents of {task!r} act one after the other: leave out parallel=True.")
    if family == "atari":
        _use_installed_roms(kwargs)
    use_parallel = has_parallel if parallel is None else parallel
    return module.parallel_env(**kwargs) if use_parallel else module.env(**kwargs)


def _use_installed_roms(kwargs: dict[str, Any]) -> None:
    """Use the ROMs that ale-py contains, unless the user passes another path."""
    spec = find_spec("ale_py")
    if "auto_rom_install_path" not in kwargs and spec is not None and spec.origin is not None:
        kwargs["auto_rom_install_path"] = str(Path(spec.origin).parent / "roms")
