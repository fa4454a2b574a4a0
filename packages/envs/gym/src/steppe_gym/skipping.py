"""Repeated actions within one environment of a batch: a wrapper of the library's own kind."""

from __future__ import annotations

from typing import Any

from steppe.errors import SpecError

from .compat import Adapter

__all__ = ["checked_frame_skip", "repeated", "with_frame_skip"]


def repeated(step: Any, times: int) -> Any:
    """Repeat an action, sum the rewards, stop where the episode ends."""

    def step_repeatedly(action: Any) -> tuple[Any, Any, Any, Any, Any]:
        total: Any = 0
        for _ in range(times):
            observation, reward, terminated, truncated, info = step(action)
            total = total + reward
            if terminated or truncated:
                break
        return observation, total, terminated, truncated, info

    return step_repeatedly


def with_frame_skip(env: Any, adapter: Adapter, times: int) -> Any:
    """Wrap an environment so that one step is several of its own.

    Args:
        env: a single environment.
        adapter: how its library is talked to.
        times: how many of its steps one step is.
    """
    checked_frame_skip(times)

    class FrameSkip(adapter.module.Wrapper):  # type: ignore[name-defined,misc]
        def step(self, action: Any) -> Any:
            return adapter.unsort_step(repeated(adapter.stepper(self.env), times)(action))

    return FrameSkip(env)


def checked_frame_skip(times: int) -> None:
    """Raise a SpecError unless this is how many times an action can be repeated."""
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise SpecError(f"frame_skip is a whole number >= 1, found {times!r}.")
