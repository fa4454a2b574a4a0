"""One step of the array path as one function: all that the specs decide is decided before the first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .compat import Step

__all__ = ["Kernel", "compile_kernel"]

Kernel = Callable[[Any, Any], "tuple[bool, bool]"]
"""``kernel(action, out) -> (terminated, truncated)``, which writes observation and reward into ``out``."""


def compile_kernel(
    step: Step,
    write: Callable[[Any, Any], None],
    decode: Callable[[Any], Any] | None,
    *,
    readers: Sequence[Any] = (),
    check: Callable[[Any, Any], None] | None = None,
) -> Kernel:
    """Make the function that takes one step.

    Args:
        step: takes an action of the library and returns its five values.
        write: copies an observation into its places.
        decode: turns a native action into one of the library; None where they are the same.
        readers: info readers.
        check: looks at the observation and the reward, before they are written.
    """
    if readers or check is not None:
        return _full_kernel(step, write, decode, list(readers), check)
    if decode is None:

        def kernel(action: Any, out: Any) -> tuple[bool, bool]:
            observation, reward, terminated, truncated, _ = step(action)
            write(observation, out)
            out["reward"][...] = reward
            return bool(terminated), bool(truncated)

        return kernel

    def decoding_kernel(action: Any, out: Any) -> tuple[bool, bool]:
        observation, reward, terminated, truncated, _ = step(decode(action))
        write(observation, out)
        out["reward"][...] = reward
        return bool(terminated), bool(truncated)

    return decoding_kernel


def _full_kernel(step: Step, write: Any, decode: Any, readers: list[Any], check: Any) -> Kernel:
    def kernel(action: Any, out: Any) -> tuple[bool, bool]:
        observation, reward, terminated, truncated, info = step(action if decode is None else decode(action))
        if check is not None:
            check(observation, reward)
        write(observation, out)
        out["reward"][...] = reward
        for reader in readers:
            for key, array in reader.read(info).items():
                out[key][...] = array
        return bool(terminated), bool(truncated)

    return kernel
