"""Kernels: functions that take one step of the array path.

They are specialized for the specs before the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steppe.envs import as_flag, as_numbers, write_row, wrong_shape

from .compat import Step, not_five

__all__ = ["Kernel", "bind_kernel", "compile_kernel"]

Kernel = Callable[[Any, Any], "tuple[bool, bool]"]
"""``kernel(action, out) -> (terminated, truncated)``, which writes observation and reward into ``out``."""

#: Types of scalars. ``row[0] = number`` takes a third of the time of ``row[...] = number``.
_NUMBERS = frozenset((float, int, bool, np.float64, np.float32))


def compile_kernel(
    step: Step,
    write: Callable[[Any, Any], None],
    decode: Callable[[Any], Any] | None,
    *,
    reward_shape: tuple[int, ...] = (1,),
    readers: Sequence[Any] = (),
    check: Callable[[Any, Any], None] | None = None,
) -> Kernel:
    """Make the function that takes one step in any row.

    Args:
        step: function that takes an action of the library and returns five values.
        write: writes an observation into its rows.
        decode: converts a decoded action to a value of the action space. ``None``: they are equal.
        reward_shape: shape of the row of the reward.
        readers: info readers.
        check: validates observation and reward before they are written.
    """
    decode = decode or _same
    if readers or check is not None or reward_shape != (1,):
        return _full_kernel(step, write, decode, reward_shape, list(readers), check)

    def kernel(action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        result = step(decode(action))
        try:
            observation, reward, terminated, truncated, _ = result
        except (TypeError, ValueError):
            raise not_five(result) from None
        write(observation, out)
        if type(reward) in _NUMBERS:
            out["reward"][0] = reward
        else:
            _write_reward(out["reward"], reward)
        if terminated is False and truncated is False:
            return False, False
        return as_flag("terminated", terminated), as_flag("truncated", truncated)

    return kernel


def bind_kernel(
    step: Step,
    decode: Callable[[Any], Any] | None,
    observation_row: np.ndarray,
    write: Callable[[Any, Any], None],
    reward_row: np.ndarray,
    *,
    check: Callable[[Any, Any], None] | None,
    stale: list[bool],
    otherwise: Kernel,
) -> Kernel:
    """Make the function that takes one step in a fixed row.

    The observation must be a single array, and the reward a scalar. It takes half the time of a kernel for any row.

    Args:
        step: function that takes an action of the library and returns five values.
        decode: converts a decoded action to a value of the action space. ``None``: they are equal.
        observation_row: the row of the observation.
        write: ``write(row, observation)`` for observations that are not arrays of that shape.
        reward_row: the row of the reward, ``[1]``.
        check: validates the first observation and reward before they are written. ``None``: already validated.
        stale: a list that gets an item when this kernel becomes outdated.
        otherwise: the kernel that takes the steps afterwards.
    """
    shape, dtype = observation_row.shape, observation_row.dtype

    def kernel(action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        nonlocal check
        if stale:
            return otherwise(action, out)
        result = step(action if decode is None else decode(action))
        try:
            observation, reward, terminated, truncated, _ = result
        except (TypeError, ValueError):
            raise not_five(result) from None
        if check is not None:
            check(observation, reward)
            check = None
        try:
            fits = observation.shape == shape and (observation.dtype is dtype or observation.dtype.kind in "biuf")
        except AttributeError:  # a number or a list
            fits = False
        if fits:
            observation_row[...] = observation
        else:
            write(observation_row, observation)
        if type(reward) in _NUMBERS:
            reward_row[0] = reward
        else:
            _write_reward(reward_row, reward)
        if terminated is False and truncated is False:
            return False, False
        return as_flag("terminated", terminated), as_flag("truncated", truncated)

    return kernel


def _same(action: Any) -> Any:
    return action


def _full_kernel(
    step: Step, write: Any, decode: Any, reward_shape: tuple[int, ...], readers: list[Any], check: Any
) -> Kernel:
    single = reward_shape == (1,)

    def kernel(action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        result = step(decode(action))
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            raise not_five(result) from None
        if check is not None:
            check(observation, reward)
        write(observation, out)
        if single:
            _write_reward(out["reward"], reward)
        else:
            write_row(out, "reward", reward)
        for reader in readers:
            for key, array in reader.read(info).items():
                out[key][...] = array
        return as_flag("terminated", terminated), as_flag("truncated", truncated)

    return kernel


def _write_reward(row: np.ndarray, reward: Any) -> None:
    """Write a reward that numpy can convert to one number.

    Raises:
        SpecError: the reward is not one number.
    """
    numbers = as_numbers("reward", reward, (1,))
    try:
        row[...] = numbers
    except ValueError:
        raise wrong_shape("reward", (1,), reward, space=True) from None
