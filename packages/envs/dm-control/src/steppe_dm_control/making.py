"""Make an environment of dm_control by domain and task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from steppe.registry import env_not_found

from .names import LOCOMOTION, MANIPULATION, available_names, locomotion_makers, split_name
from .rendering import prepare_rendering

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
        name: the domain, or domain and task together: ``"cheetah-run"``, ``"cheetah/run"``.
        task: the task, if ``name`` is the domain.
        task_kwargs: arguments of the task; ``random`` is a seed or a numpy ``RandomState``.
        renders: whether the environment will render frames.
        **kwargs: arguments of the suite's ``load``: ``environment_kwargs``, ``visualize_reward``.

    Raises:
        EnvNotFound: the library has no such environment.
        TypeError: an argument other than ``random`` for manipulation or locomotion.
    """
    full_name = name if task is None else f"{name}/{task}"
    domain, task_name = split_name(name) if task is None else (name, task)
    if renders or domain == LOCOMOTION or (domain == MANIPULATION and str(task_name).endswith("_vision")):
        prepare_rendering()
    if domain == MANIPULATION:
        from dm_control import manipulation

        if task_name not in manipulation.ALL:
            raise env_not_found("dm", full_name, names=available_names())
        return manipulation.load(task_name, seed=_random_only(full_name, task_kwargs, kwargs))
    if domain == LOCOMOTION:
        makers = locomotion_makers()
        if task_name not in makers:
            raise env_not_found("dm", full_name, names=available_names())
        random = _random_only(full_name, task_kwargs, kwargs)
        random = random if isinstance(random, np.random.RandomState) else np.random.RandomState(random)
        return makers[task_name](random_state=random)
    from dm_control import suite

    if (domain, task_name) not in suite.ALL_TASKS:
        raise env_not_found("dm", full_name, names=available_names())
    return suite.load(domain, task_name, task_kwargs=dict(task_kwargs), **kwargs)


def _random_only(name: str, task_kwargs: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    """Return the argument ``random``, and refuse all others."""
    unknown = sorted((set(task_kwargs) - {"random"}) | {key for key, value in others.items() if value})
    if unknown:
        raise TypeError(
            f"'dm:{name}' does not take {unknown}: dm_control makes it from a random state only (random=0). To use "
            "other arguments, make the environment with dm_control and wrap it with DMControlWrapper(env)."
        )
    return task_kwargs.get("random")
