"""One step of the array path as one function: all that the specs decide is decided before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steppe.envs import write_row, wrong_shape
from steppe.errors import SpecError

from .compat import Step, not_five

__all__ = ["Kernel", "bind_kernel", "compile_kernel"]

Kernel = Callable[[Any, Any], "tuple[bool, bool]"]
"""``kernel(action, out) -> (terminated, truncated)``, which writes observation and reward into ``out``."""

#: Single numbers, which ``row[0] = number`` writes in a third of the time that ``row[...] = number`` takes.
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
    """Make the function that takes one step, in whichever row.

    Args:
        step: takes an action of the library and returns its five values.
        write: copies an observation into its places.
        decode: turns a native action into one of the library; None where they are the same.
        reward_shape: of the reward's row.
        readers: info readers.
        check: looks at the observation and the reward, before they are written.
    """
    decode = decode or _same
    if readers or check is not None or reward_shape != (1,):
        return _full_kernel(step, write, decode, reward_shape, list(readers), check)

    def kernel(action: Any, out: Any) -> tuple[bool, bool]:
        found = step(decode(action))
        try:
            observation, reward, terminated, truncated, _ = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        write(observation, out)
        if type(reward) in _NUMBERS:
            out["reward"][0] = reward
        else:
            _write_reward(out["reward"], reward)
        return bool(terminated), bool(truncated)

    return kernel


def bind_kernel(
    step: Step,
    decode: Callable[[Any], Any] | None,
    observation_row: np.ndarray[Any, Any],
    write: Callable[[Any, Any], None],
    reward_row: np.ndarray[Any, Any],
    *,
    check: Callable[[Any, Any], None] | None,
    stale: list[bool],
    otherwise: Kernel,
) -> Kernel:
    """Make the function that takes one step in one row, where that is a single array and a reward of one number.

    It takes half the time that the one for whichever row takes.

    Args:
        step: takes an action of the library and returns its five values.
        decode: turns a native action into one of the library; None where they are the same.
        observation_row: where the observation goes.
        write: ``write(row, observation)`` for one that is not an array of its shape.
        reward_row: where the reward goes, ``[1]``.
        check: looks at the first observation and reward, before they are written; None where that has been done.
        stale: not empty once the environment steps in another way.
        otherwise: what takes a step then.
    """
    shape = observation_row.shape

    def kernel(action: Any, out: Any) -> tuple[bool, bool]:
        nonlocal check
        if stale:
            return otherwise(action, out)
        found = step(action if decode is None else decode(action))
        try:
            observation, reward, terminated, truncated, _ = found
        except (TypeError, ValueError):
            raise not_five(found) from None
        if check is not None:
            check(observation, reward)
            check = None
        try:
            fits = observation.shape == shape
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
        if terminated or truncated:
            return bool(terminated), bool(truncated)
        return False, False

    return kernel


def _same(action: Any) -> Any:
    return action


def _full_kernel(
    step: Step, write: Any, decode: Any, reward_shape: tuple[int, ...], readers: list[Any], check: Any
) -> Kernel:
    single = reward_shape == (1,)

    def kernel(action: Any, out: Any) -> tuple[bool, bool]:
        found = step(decode(action))
        try:
            observation, reward, terminated, truncated, info = found
        except (TypeError, ValueError):
            raise not_five(found) from None
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
        return bool(terminated), bool(truncated)

    return kernel


def _write_reward(row: np.ndarray[Any, Any], reward: Any) -> None:
    """Write whatever numpy takes for one number.

    Raises:
        SpecError: it is none.
    """
    try:
        row[...] = reward
    except (TypeError, ValueError):
        if isinstance(reward, np.ndarray | list | tuple):
            raise wrong_shape("reward", (1,), reward, space=True) from None
        raise SpecError(f"'reward' must be a number; the library returned {reward!r}.") from None
