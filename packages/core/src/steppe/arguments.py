"""Arguments that programs for other libraries pass: those that only choose how, and those that do not exist.

An argument that only chooses *how* something is done (``pin_memory``, ``use_register``) is taken and has no effect:
leaving it out gives the same result, and its first use says what is done instead. An argument that would change the
result is never ignored.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable

from . import errors

__all__ = ["ignored_argument", "unknown_argument"]

# (owner, name) of what has been said in this process.
_said: set[tuple[str, str]] = set()


def ignored_argument(owner: str, name: str, instead: str, *, kind: str = "argument") -> None:
    """Warn, once in a process for each owner and name, that an argument, or a method, has no effect.

    The warning points at the first caller outside of steppe and its plugins.

    Args:
        owner: class or function that took the argument, such as ``"OneHot"``.
        name: the argument.
        instead: what is done in its place, as a clause without a full stop: ``"rows are always in shared memory"``.

        kind: what it is: ``"argument"`` or ``"method"``.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as found:
        ...     warnings.simplefilter("always")
        ...     for _ in range(3):
        ...         ignored_argument("Example", "pin_memory", "memory is page-locked where data goes to a GPU")
        >>> [str(warning.message) for warning in found]
        ['Example: the argument pin_memory has no effect: memory is page-locked where data goes to a GPU.']
    """
    if (owner, name) in _said:
        return
    _said.add((owner, name))
    warnings.warn(
        f"{owner}: the {kind} {name} has no effect: {instead}.", errors.IgnoredArgumentWarning, stacklevel=_outside()
    )


def _outside() -> int:
    """The stacklevel, for the caller of this function, of the first frame that is no frame of steppe."""
    frame = sys._getframe(1)
    level = 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        level += 1
    return level


def _is_ours(module: str) -> bool:
    package = module.partition(".")[0]
    # `abc` is on the way where a metaclass makes the object.
    return package in ("steppe", "abc") or package.startswith("steppe_")


def unknown_argument(owner: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for an argument that does not exist, with the nearest of those that do.

    Args:
        owner: class or function that was called.
        name: the argument.
        known: names of the arguments that it takes.

    Returns:
        A TypeError, as Python raises for an unknown argument; to be raised by the caller.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(names)}."
    return TypeError(f"{owner} has no argument {name!r}: {hint}")
