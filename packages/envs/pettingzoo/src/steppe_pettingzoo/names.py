"""Names of the environments of PettingZoo, without importing their modules.

This module does not import torch.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

__all__ = ["available_names", "module_of"]

_FAMILIES = ("atari", "butterfly", "classic", "sisl")
_TASK = re.compile(r"\w+_v\d+")


def available_names() -> list[str]:
    """Return the names of all environments: ``butterfly/pistonball_v6``, ..."""
    names = [f"{family}/{task}" for family in _FAMILIES for task in _tasks("pettingzoo", family)]
    return sorted([*names, *(f"mpe2/{task}" for task in _tasks("mpe2"))])


def module_of(name: str) -> str | None:
    """Return the module of an environment, ``pettingzoo.butterfly.pistonball_v6``.

    Returns None if there is no such name.

    Args:
        name: ``butterfly/pistonball_v6``, or ``pistonball_v6`` alone.
    """
    matches = [candidate for candidate in available_names() if name in (candidate, candidate.partition("/")[2])]
    if not matches:
        return None
    family, _, task = matches[0].partition("/")
    return f"mpe2.{task}" if family == "mpe2" else f"pettingzoo.{family}.{task}"


def _tasks(package: str, *parts: str) -> list[str]:
    spec = find_spec(package)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [
        file.stem for folder in folders for file in Path(folder, *parts).glob("*_v*.py") if _TASK.fullmatch(file.stem)
    ]
