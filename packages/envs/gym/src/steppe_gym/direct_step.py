"""A step past the library's wrappers that do nothing once an episode has begun."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["Step", "direct_step"]

Step = Callable[[Any], "tuple[Any, Any, Any, Any, Any]"]


def direct_step(env: Any) -> Step:
    """Make what does the same as ``env.step``, for an environment of gymnasium 1.0 to 1.4.

    ``gymnasium.make`` puts ``TimeLimit`` around ``OrderEnforcing`` around ``PassiveEnvChecker``. The second asks if
    there was a reset, the third looks at the first two steps. From then on both only hand on what they are given, which
    takes a tenth of the time of a step of CartPole. The first step of each episode goes through all of them, and finds
    out whether the others have to.

    Args:
        env: a single environment.

    Returns:
        The function; ``env.step`` itself where there is nothing to pass by.
    """
    wrappers: Any = sys.modules.get("gymnasium.wrappers")
    if wrappers is None or type(env) is not wrappers.TimeLimit or "step" in vars(env):
        return env.step  # type: ignore[no-any-return]
    if type(env.env) not in (wrappers.OrderEnforcing, wrappers.PassiveEnvChecker):
        return env.step  # type: ignore[no-any-return]
    whole, limit, inner = env.step, env, None

    def step(action: Any) -> tuple[Any, Any, Any, Any, Any]:
        nonlocal inner
        if inner is None or not limit._elapsed_steps:
            found: tuple[Any, Any, Any, Any, Any] = whole(action)
            inner = _behind_onlookers(limit.env, wrappers)
            return found
        observation, reward, terminated, truncated, info = inner.step(action)
        limit._elapsed_steps += 1
        if limit._elapsed_steps >= limit._max_episode_steps:
            truncated = True
        return observation, reward, terminated, truncated, info

    return step


def _behind_onlookers(env: Any, wrappers: Any) -> Any:
    """The environment behind wrappers that hand on their steps from now on; None where one of them may do more."""
    while "step" not in vars(env):
        if type(env) is wrappers.OrderEnforcing:
            looks_on = env._has_reset
        elif type(env) is wrappers.PassiveEnvChecker:
            looks_on = env.checked_step and getattr(env, "checked_data_reuse", True)
        else:
            return env
        if not looks_on:
            return None
        env = env.env
    return env
