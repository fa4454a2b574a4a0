"""Names of the environments of dm_control, listed without making one. Torch-free."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["available_names", "available_tasks", "locomotion_makers", "split_name"]

MANIPULATION = "manipulation"
LOCOMOTION = "locomotion"

# Example modules of locomotion whose functions make an environment from a random state. The tasks that track motion
# capture are left out, because they download data.
_LOCOMOTION_MODULES = ("basic_cmu_2019", "basic_rodent_2020")


def available_tasks() -> dict[str, list[str]]:
    """Return the tasks of each domain.

    The domains are those of the suite, ``"manipulation"`` and ``"locomotion"``.
    """
    from dm_control import manipulation, suite

    tasks: dict[str, list[str]] = {}
    for domain, task in suite.ALL_TASKS:
        tasks.setdefault(domain, []).append(task)
    tasks[MANIPULATION] = list(manipulation.ALL)
    tasks[LOCOMOTION] = list(locomotion_makers())
    return tasks


def available_names() -> list[str]:
    """Return the names of all environments: ``cheetah-run``, ``manipulation/...``"""
    tasks = available_tasks()
    others = (MANIPULATION, LOCOMOTION)
    names = [
        f"{domain}-{task}" for domain, domain_tasks in tasks.items() if domain not in others for task in domain_tasks
    ]
    return sorted(names) + [f"{domain}/{task}" for domain in others for task in tasks[domain]]


def split_name(name: str) -> tuple[str, str | None]:
    """Split ``cheetah-run`` or ``cheetah/run`` into domain and task.

    Without a separator, the task is None.
    """
    # Names of domains and tasks contain underscores, but no dashes.
    domain, separator, task = name.partition("/") if "/" in name else name.partition("-")
    return domain, task if separator else None


def locomotion_makers() -> dict[str, Callable[..., Any]]:
    """Return the functions of locomotion's examples that make an environment, by name."""
    makers: dict[str, Callable[..., Any]] = {}
    for name in _LOCOMOTION_MODULES:
        module = importlib.import_module(f"dm_control.locomotion.examples.{name}")
        for key, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_"):
                makers[key] = value
    return makers
