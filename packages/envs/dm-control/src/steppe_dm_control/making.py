"""Making an environment of dm_control by domain and task, with errors that say what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from steppe.registry import env_not_found

from .names import LOCOMOTION, MANIPULATION, available_names, locomotion_makers, split_name

__all__ = ["make"]


def make(
    name: str,
    task: str | None = None,
    *,
    task_kwargs: Mapping[str, Any],
    renders: bool = False,
    **kwargs: Any,
) -> Any:
    """Make one environment of the library.

    Args:
        name: the domain, or domain and task in one: ``"cheetah-run"``, ``"cheetah/run"``.
        task: the task, where ``name`` is the domain.
        task_kwargs: for the task; ``random`` is a seed or a numpy ``RandomState``.
        renders: whether frames will be asked for.
        **kwargs: for the suite's ``load``: ``environment_kwargs``, ``visualize_reward``.

    Raises:
        EnvNotFound: there is none of this name.
    """
    asked = name if task is None else f"{name}/{task}"
    domain, chosen = split_name(name) if task is None else (name, task)
    if renders or domain == LOCOMOTION or (domain == MANIPULATION and str(chosen).endswith("_vision")):
        _choose_headless_rendering()
    if domain == MANIPULATION:
        from dm_control import manipulation

        if chosen not in manipulation.ALL:
            raise env_not_found("dm", asked, names=available_names())
        return manipulation.load(chosen, seed=_random_only(asked, task_kwargs, kwargs))
    if domain == LOCOMOTION:
        makers = locomotion_makers()
        if chosen not in makers:
            raise env_not_found("dm", asked, names=available_names())
        random = _random_only(asked, task_kwargs, kwargs)
        random = random if isinstance(random, np.random.RandomState) else np.random.RandomState(random)
        return makers[chosen](random_state=random)
    from dm_control import suite

    if (domain, chosen) not in suite.ALL_TASKS:
        raise env_not_found("dm", asked, names=available_names())
    return suite.load(domain, chosen, task_kwargs=dict(task_kwargs), **kwargs)


def _random_only(name: str, task_kwargs: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    """The random state of an environment that takes no other argument."""
    unknown = sorted((set(task_kwargs) - {"random"}) | {key for key, value in others.items() if value})
    if unknown:
        raise TypeError(
            f"'dm:{name}' does not take {unknown}: dm_control makes it from a random state alone (random=0). "
            "DMControlWrapper(env) wraps an environment that you make yourself."
        )
    return task_kwargs.get("random")


def _choose_headless_rendering() -> None:
    """Have MuJoCo render without a display where there is none, unless the user has said how.

    The library reads the variable when it is imported, which is mostly when the first environment is made.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ):
        os.environ["MUJOCO_GL"] = os.environ.get("MUJOCO_GL") or "egl"
