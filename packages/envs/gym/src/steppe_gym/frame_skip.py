"""Repeat actions, in a step function or in a wrapper class of the library."""

from __future__ import annotations

from typing import Any

from steppe.errors import ArgumentError

from .compat import Adapter, Step

__all__ = ["checked_frame_skip", "repeated", "with_frame_skip"]


def repeated(step: Step, times: int) -> Step:
    """Make a step function that repeats an action and sums the rewards.

    The end of the episode stops it.
    """

    def step_repeatedly(action: Any) -> tuple[Any, Any, Any, Any, Any]:
        total: Any = 0
        for _ in range(times):
            observation, reward, terminated, truncated, info = step(action)
            try:
                total = total + reward
            except TypeError:  # not a number; the code that writes the reward raises the error
                return observation, reward, terminated, truncated, info
            if terminated or truncated or terminated is None or truncated is None:
                break
        return observation, total, terminated, truncated, info

    return step_repeatedly


def with_frame_skip(env: Any, adapter: Adapter, times: int) -> Any:
    """Wrap an environment so that each step repeats the action.

    Args:
        env: a single environment.
        adapter: the adapter of its library.
        times: number of repetitions.
    """
    checked_frame_skip(times)

    class FrameSkip(adapter.module.Wrapper):  # type: ignore[name-defined,misc]
        def step(self, action: Any) -> Any:
            return adapter.unsort_step(repeated(adapter.stepper(self.env), times)(action))

    return FrameSkip(env)


def checked_frame_skip(times: int) -> None:
    """Raise a SpecError unless ``times`` is a valid number of repetitions."""
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise ArgumentError(f"frame_skip must be an integer >= 1, found {times!r}.")
