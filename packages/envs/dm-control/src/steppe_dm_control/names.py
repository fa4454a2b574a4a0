"""Which environments dm_control has: listed and looked up without building anything. Torch-free."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["available_names", "available_tasks", "locomotion_makers", "split_name"]

MANIPULATION = "manipulation"
LOCOMOTION = "locomotion"

# The modules of locomotion's examples whose functions make an environment from a random state. The tracking of motion
# capture is not among them: its data is downloaded.
_LOCOMOTION_MODULES = ("basic_cmu_2019", "basic_rodent_2020")


def available_tasks() -> dict[str, list[str]]:
    """The tasks of each domain of the suite, and of ``"manipulation"`` and ``"locomotion"``."""
    from dm_control import manipulation, suite

    found: dict[str, list[str]] = {}
    for domain, task in suite.ALL_TASKS:
        found.setdefault(domain, []).append(task)
    found[MANIPULATION] = list(manipulation.ALL)
    found[LOCOMOTION] = list(locomotion_makers())
    return found


def available_names() -> list[str]:
    """The names of all environments: ``cheetah-run`` of the suite, ``manipulation/...`` and ``locomotion/...``."""
    tasks = available_tasks()
    others = (MANIPULATION, LOCOMOTION)
    names = [f"{domain}-{task}" for domain, own in tasks.items() if domain not in others for task in own]
    return sorted(names) + [f"{domain}/{task}" for domain in others for task in tasks[domain]]


def split_name(name: str) -> tuple[str, str | None]:
    """Split ``cheetah-run`` or ``cheetah/run`` into domain and task; the task is None where there is none."""
    # Names of domains and tasks have underscores, and no dashes.
    domain, separator, task = name.partition("/") if "/" in name else name.partition("-")
    return domain, task if separator else None


def locomotion_makers() -> dict[str, Callable[..., Any]]:
    """The functions of locomotion's examples that make an environment, by name."""
    found: dict[str, Callable[..., Any]] = {}
    for name in _LOCOMOTION_MODULES:
        module = importlib.import_module(f"dm_control.locomotion.examples.{name}")
        for key, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_"):
                found[key] = value
    return found
