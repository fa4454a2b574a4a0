"""One step of the array path as one function: all that the specs decide is decided before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steppe.envs import write_row, wrong_shape
from steppe.errors import SpecError

from .compat import Step, not_five

__all__ = ["Kernel", "compile_kernel"]

Kernel = Callable[[Any, Any], "tuple[bool, bool]"]
"""``kernel(action, out) -> (terminated, truncated)``, which writes observation and reward into ``out``."""


def compile_kernel(
    step: Step,
    write: Callable[[Any, Any], None],
    decode: Callable[[Any], Any] | None,
    *,
    reward_shape: tuple[int, ...] = (1,),
    readers: Sequence[Any] = (),
    check: Callable[[Any, Any], None] | None = None,
) -> Kernel:
    """Make the function that takes one step.

    Args:
        step: takes an action of the library and returns its five values.
        write: copies an observation into its places.
        decode: turns a native action into one of the library; None where they are the same.
        reward_shape: of the reward's row.
        readers: info readers.
        check: looks at the observation and the reward, before they are written.
    """
    if readers or check is not None or reward_shape != (1,):
        return _full_kernel(step, write, decode, reward_shape, list(readers), check)
    if decode is None:

        def kernel(action: Any, out: Any) -> tuple[bool, bool]:
            found = step(action)
            try:
                observation, reward, terminated, truncated, _ = found
            except (TypeError, ValueError):
                raise not_five(found) from None
            write(observation, out)
            try:
                out["reward"][...] = reward
            except (TypeError, ValueError):
                raise _no_reward(reward) from None
            return bool(terminated), bool(truncated)

        return kernel

    def decoding_kernel(action: Any, out: Any) -> tuple[bool, bool]:
        found = step(decode(action))
        try:
            observation, reward, terminated, truncated, _ = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        write(observation, out)
        try:
            out["reward"][...] = reward
        except (TypeError, ValueError):
            raise _no_reward(reward) from None
        return bool(terminated), bool(truncated)

    return decoding_kernel


def _full_kernel(
    step: Step, write: Any, decode: Any, reward_shape: tuple[int, ...], readers: list[Any], check: Any
) -> Kernel:
    single = reward_shape == (1,)

    def kernel(action: Any, out: Any) -> tuple[bool, bool]:
        found = step(action if decode is None else decode(action))
        try:
            observation, reward, terminated, truncated, info = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        if check is not None:
            check(observation, reward)
        write(observation, out)
        if single:
            try:
                out["reward"][...] = reward
            except (TypeError, ValueError):
                raise _no_reward(reward) from None
        else:
            write_row(out, "reward", reward)
        for reader in readers:
            for key, array in reader.read(info).items():
                out[key][...] = array
        return bool(terminated), bool(truncated)

    return kernel


def _no_reward(reward: Any) -> SpecError:
    """The error of a reward that is not one number."""
    if isinstance(reward, np.ndarray | list | tuple):
        return wrong_shape("reward", (1,), reward, space=True)
    return SpecError(f"'reward' must be a number; the library returned {reward!r}.")
